import { pino } from "pino";
import { systemClock } from "../../../src/base/clock.ts";
import { hasReason } from "../../../src/base/errors.ts";
import { EtcdClient, type EtcdClientOptions } from "../../../src/etcd/client/etcd-client.ts";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import type { Etcd } from "../../etcd/etcd.ts";

/** A logger without output. */
export const silent = pino({ level: "silent" });

export function clientOf(
  etcd: Pick<Etcd, "url">,
  options: Partial<EtcdClientOptions> = {},
): EtcdClient {
  return new EtcdClient({
    endpoints: [etcd.url],
    clock: systemClock,
    logger: silent,
    ...options,
  });
}

let opened = 0;

/** A prefix that no other test has; ends with a slash. */
export function newPrefix(): string {
  opened++;
  return `/test-${opened}/`;
}

/** Writes to etcd through its HTTP gateway, so without code of this project, and with any bytes as keys. */
export class Source {
  readonly #url: string;

  constructor(etcd: Pick<Etcd, "url">) {
    this.#url = `${etcd.url}/v3/`;
  }

  /** Executes all operations in one transaction; resolves to etcd's revision afterwards. */
  async write(prefix: string | Buffer, operations: readonly Operation[]): Promise<number> {
    const key = (relative: string): string =>
      Buffer.concat([Buffer.from(prefix), Buffer.from(relative)]).toString("base64");
    const success = operations.map((operation) =>
      operation.type === "put"
        ? {
            requestPut: {
              key: key(operation.key),
              value: Buffer.from(operation.value).toString("base64"),
            },
          }
        : { requestDeleteRange: { key: key(operation.key) } },
    );
    return this.#revision("kv/txn", { success });
  }

  /** Any bytes as a key. */
  async putBytes(key: Buffer, value: string = ""): Promise<number> {
    return this.#revision("kv/put", {
      key: key.toString("base64"),
      value: Buffer.from(value).toString("base64"),
    });
  }

  async compact(revision: number): Promise<void> {
    await this.call("kv/compaction", { revision: String(revision), physical: true });
  }

  async revision(): Promise<number> {
    return this.#revision("kv/range", { key: Buffer.from("x").toString("base64") });
  }

  async call(path: string, body: object): Promise<unknown> {
    const response = await fetch(this.#url + path, {
      method: "POST",
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(60_000),
    });
    if (!response.ok) throw new Error(`etcd refuses ${path}: ${await response.text()}`);
    return response.json();
  }

  async #revision(path: string, body: object): Promise<number> {
    const response = (await this.call(path, body)) as { header: { revision: string } };
    return Number(response.header.revision);
  }
}

/**
 * Repeats a call while it fails with UPSTREAM_UNAVAILABLE, as after etcd was unreachable: a channel waits up to a
 * second before it tries again.
 */
export async function eventually<Result>(call: () => Promise<Result>): Promise<Result> {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!hasReason(error, "UPSTREAM_UNAVAILABLE")) throw error;
    }
  }
}
