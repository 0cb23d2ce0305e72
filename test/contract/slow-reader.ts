import { onTestFinished } from "vitest";
import type { Delivery } from "../../src/cacher/request/request.ts";
import { type BareCall, BareGrpc, BareStatus } from "../foreign/bare-grpc.ts";
import { deliveries } from "../foreign/deliveries.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import { resumePointOf, type SeenResponse } from "../guarantees/recording.ts";
import { responseOf } from "../model-based/wire.ts";
import { type Replica, resource } from "./replica.ts";

/** Maximum number of bytes that a client receives before it reads on: a value of `large` is larger. */
const windowBytes = 16 * 1024;

/** More than what a client that does not read lets in. */
export const large = "x".repeat(64 * 1024);

/**
 * A watch on its own connection, whose client reads only on request: otherwise flow control
 * shuts, and the service can send it no more.
 */
export class SlowReader {
  readonly delivery: Delivery;
  /** Everything that it has received so far. */
  readonly responses: SeenResponse[] = [];
  /** Why it has ended, if it has. */
  ended: BareStatus | undefined;
  readonly #messages: AsyncIterator<Buffer>;

  private constructor(delivery: Delivery, call: BareCall) {
    this.delivery = delivery;
    this.#messages = call[Symbol.asyncIterator]();
  }

  /** From now on, with what was before each event. Resolves when it has been answered. */
  static async open({ port }: Replica, delivery: Delivery): Promise<SlowReader> {
    const grpc = new BareGrpc(`http://127.0.0.1:${port}`, windowBytes);
    onTestFinished(() => grpc.close());
    const request = encode({ 1: resource, 8: deliveries[delivery], 9: true });
    const call = grpc.call("/watchfanout.v1.ListWatchService/Watch", request);
    const reader = new SlowReader(delivery, call);
    await reader.#readOne();
    return reader;
  }

  get resumePoint(): number {
    return resumePointOf(this.responses) ?? 0;
  }

  /** Reads until its resume point has come to `revision`, or it has ended. */
  async readUntil(revision: number): Promise<void> {
    while (this.ended === undefined && this.resumePoint < revision) await this.#readOne();
  }

  async #readOne(): Promise<void> {
    try {
      const { value, done } = await this.#messages.next();
      if (done === true) throw new Error("A watch has ended without a status.");
      this.responses.push(responseOf(new Message(value)));
    } catch (error) {
      if (!(error instanceof BareStatus)) throw error;
      this.ended = error;
    }
  }
}
