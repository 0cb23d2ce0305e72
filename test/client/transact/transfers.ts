import type { Client } from "../../../src/client/client.ts";
import type { TransactOptions } from "../../../src/client/transact/transact.ts";
import type { Transaction } from "../../../src/client/transact/transaction.ts";
import { counters } from "../counters.ts";
import { resources } from "./tiers.ts";

/** One transfer: from an account to another, by number. */
export interface Transfer {
  readonly from: number;
  readonly to: number;
  readonly amount: number;
}

const accounts = 4;
const initial = 10;

const options: TransactOptions = { maxAttempts: 10_000, timeoutMs: 150_000 };

/**
 * A bank: accounts in two resources, between which clients transfer. Each transfer also counts, for its client, so that one that
 * is lost or applied twice is found.
 */
export class Bank {
  readonly #name: string;

  constructor(name: string) {
    this.#name = name;
  }

  async open(client: Client): Promise<void> {
    await client.transact(async (tx) => {
      for (let account = 0; account < accounts; account++) this.#set(tx, account, initial);
    });
  }

  /** Transfers one after the other; resolves to the number of calls of the transactions' functions. */
  async transfer(client: Client, member: number, transfers: readonly Transfer[]): Promise<number> {
    let calls = 0;
    for (const { from, to, amount } of transfers) {
      await client.transact(async (tx) => {
        calls++;
        const [paying, receiving, count] = await Promise.all([
          this.#balance(tx, from),
          this.#balance(tx, to),
          tx.of(this.#resource(member)).get(this.#counter(member)),
        ]);
        tx.of(this.#resource(member)).put(this.#counter(member), { n: (count?.value.n ?? 0) + 1 });
        if (from === to || paying < amount) return;
        this.#set(tx, from, paying - amount);
        this.#set(tx, to, receiving + amount);
      }, options);
    }
    return calls;
  }

  /** The sum of all accounts, each read on its own. */
  async total(client: Client): Promise<number> {
    const { value } = await client.transact(async (tx) => {
      let sum = 0;
      for (let account = 0; account < accounts; account++) sum += await this.#balance(tx, account);
      return sum;
    });
    return value;
  }

  /** The number of transfers of each member, as the store has it. */
  async counts(client: Client, members: number): Promise<number[]> {
    const names = Array.from({ length: members }, (_, member) => {
      return { resource: this.#resource(member).name, key: this.#counter(member) };
    });
    const { objects } = await client.batchGet(names);
    return objects.map((object) => {
      return object === undefined ? 0 : counters.decode(object.value, object.key).n;
    });
  }

  static readonly sum = accounts * initial;

  async #balance(tx: Transaction, account: number): Promise<number> {
    const object = await tx.of(this.#resource(account)).get(this.#account(account));
    if (object === undefined) throw new Error(`There is no account ${account}.`);
    return object.value.n;
  }

  #set(tx: Transaction, account: number, n: number): void {
    tx.of(this.#resource(account)).put(this.#account(account), { n });
  }

  #resource(number: number): { readonly name: string; readonly codec: typeof counters } {
    return { name: resources[number % 2] ?? "a", codec: counters };
  }

  #account(account: number): string {
    return `${this.#name}/account/${account}`;
  }

  #counter(member: number): string {
    return `${this.#name}/count/${member}`;
  }
}
