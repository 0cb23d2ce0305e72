import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "../../src/client/client.ts";
import { Mutex } from "../../src/client/coordination/mutex.ts";
import { Session } from "../../src/client/coordination/session.ts";
import type { Seeded } from "../faults/seeded.ts";
import { resource } from "../faults/wire.ts";
import type { HistoryRecorder, Input } from "./history.ts";

/** The length of the leases, in milliseconds. */
const ttlMs = 2_000;

/** How long a client holds the lock, and waits for it, in milliseconds at most. */
const [heldMs, waitMs] = [30, 5_000];

/**
 * Acquires and releases one lock with the client library. It holds the lock from the response to `lock` until its signal is
 * aborted: the release is an operation that begins there, and that ends with the response, or with the history if none comes.
 */
export class LockingClient {
  readonly #id: number;
  readonly #client: Client;
  readonly #random: Seeded;
  readonly #recorder: HistoryRecorder;
  readonly #called: () => void;
  /** The tokens of releases without a response, and where they have begun. */
  readonly #lost: { readonly token: number; readonly call: number }[] = [];
  #isStopped = false;
  readonly #running: Promise<void>;

  constructor(
    id: number,
    client: Client,
    random: Seeded,
    recorder: HistoryRecorder,
    called: () => void,
  ) {
    this.#id = id;
    this.#client = client;
    this.#random = random;
    this.#recorder = recorder;
    this.#called = called;
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
    await this.#client.close();
    for (const { token, call } of this.#lost.splice(0)) this.#push("release", token, call);
  }

  async #run(): Promise<void> {
    let session: Session | undefined;
    while (!this.#isStopped) {
      try {
        session ??= await Session.open(this.#client, { ttlMs, onError: () => {} });
        await this.#lock(session);
      } catch {
        // No server could be reached, or the lease was lost: the session gets another one.
        await delay(50);
      }
    }
    await session?.close();
  }

  async #lock(session: Session): Promise<void> {
    const mutex = new Mutex(session, resource, "lock");
    const call = this.#recorder.place();
    const lock = await mutex.lock({ signal: AbortSignal.timeout(waitMs) });
    const { fencingToken: token, signal } = lock;
    if (!lock.isHeld) {
      await lock.unlock();
      return;
    }
    this.#push("acquire", token, call);
    this.#called();
    const stopped = new Promise<number>((resolve) => {
      const end = (): void => resolve(this.#recorder.place());
      if (signal.aborted) end();
      else signal.addEventListener("abort", end);
    });
    await delay(this.#random.between(0, heldMs));
    const unlocked = lock.unlock();
    const began = await stopped;
    try {
      await unlocked;
      this.#push("release", token, began);
    } catch {
      this.#lost.push({ token, call: began });
    }
  }

  #push(what: "acquire" | "release", token: number, call: number): void {
    const input: Input = { lock: { what, token }, range: { key: "", isPrefix: false } };
    this.#recorder.operations.push({
      ...{ client: this.#id, call, return: this.#recorder.place(), input },
      output: { succeeded: true },
    });
  }
}
