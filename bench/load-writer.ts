import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { Http2Connection } from "./http2-connection.ts";
import { monotonicMs } from "./monotonic-clock.ts";
import { keyOf, putRequest } from "./requests.ts";

/** The result of a writer at a fixed rate. */
export interface PacedWrites {
  /** Number of earlier writes, which is the index of its first event. */
  readonly first: number;
  /** When each put was sent (monotonicMs), and the milliseconds until its response. */
  readonly sentAt: readonly number[];
  readonly putMillis: readonly number[];
}

/** Maximum number of writes that a writer without a rate is ahead of the slowest stream. */
const aheadOfSlowest = 1_000;
const writesInFlight = 64;
const keyCount = 1_000;

/** Puts 1,000 keys in rotation, directly into etcd. */
export class LoadWriter {
  readonly #connection: Http2Connection;
  readonly #values: Buffer[];
  /** Puts that were started, and completed. */
  #begun = 0;
  #written = 0;
  #isWriting = false;

  private constructor(connection: Http2Connection, valueBytes: number, isJson: boolean) {
    this.#connection = connection;
    this.#values = Array.from({ length: 16 }, () =>
      isJson ? jsonValue(valueBytes) : randomBytes(valueBytes),
    );
  }

  static async to(etcdUrl: string, valueBytes: number, isJson = false): Promise<LoadWriter> {
    const lost = (error: Error): void => void Promise.reject(error);
    return new LoadWriter(await Http2Connection.to(etcdUrl, lost), valueBytes, isJson);
  }

  get written(): number {
    return this.#written;
  }

  /** Writes as fast as etcd accepts and the slowest stream follows; `completed` returns the events of the latter. */
  writeSaturated(completed: () => number): void {
    this.#isWriting = true;
    const keepOn = async (): Promise<void> => {
      while (this.#isWriting) {
        if (this.#begun - completed() < aheadOfSlowest) await this.#put();
        else await delay(1);
      }
    };
    for (let i = 0; i < writesInFlight; i++) void keepOn();
  }

  /** Writes in progress are completed. */
  async stop(): Promise<void> {
    this.#isWriting = false;
    while (this.#written < this.#begun) await delay(1);
  }

  /** Writes at a rate without waiting for responses. Resolves when all responses have arrived. */
  async writePaced(perSecond: number, count: number): Promise<PacedWrites> {
    const first = this.#begun;
    const sentAt: number[] = [];
    const putMillis: number[] = [];
    const puts: Promise<void>[] = [];
    const started = monotonicMs();
    for (let i = 0; i < count; i++) {
      const wait = started + (i * 1_000) / perSecond - monotonicMs();
      if (wait > 0) await delay(wait);
      const sent = monotonicMs();
      sentAt.push(sent);
      puts.push(
        this.#put().then(() => {
          putMillis[i] = monotonicMs() - sent;
        }),
      );
    }
    await Promise.all(puts);
    return { first, sentAt, putMillis };
  }

  async #put(): Promise<void> {
    const i = this.#begun++;
    const value = this.#values[i % this.#values.length] ?? Buffer.of();
    await this.#connection.unary(putRequest(keyOf(i % keyCount), value));
    this.#written++;
  }
}

/** A value with two labels and a field, which is as long as a value of random bytes. */
function jsonValue(bytes: number): Buffer {
  const metadata = { labels: { app: "web", tier: "front" } };
  const without = JSON.stringify({ metadata, spec: { node: "n1" }, data: "" });
  const data = randomBytes(bytes)
    .toString("base64")
    .slice(0, Math.max(0, bytes - without.length));
  return Buffer.from(JSON.stringify({ metadata, spec: { node: "n1" }, data }));
}
