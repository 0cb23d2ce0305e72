import type { ClientDuplexStream, ServiceError, StatusObject } from "@grpc/grpc-js";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import { errorOf } from "../../../src/wire/call-error.ts";
import type { KeepAliveRequest } from "../../../src/wire/generated/watchfanout/v1/KeepAliveRequest.ts";
import type { KeepAliveResponse__Output } from "../../../src/wire/generated/watchfanout/v1/KeepAliveResponse.ts";

/** A KeepAlive stream of a client of grpc-js. */
export class KeepingAlive {
  readonly #call: ClientDuplexStream<KeepAliveRequest, KeepAliveResponse__Output>;
  readonly #iterator: AsyncIterator<KeepAliveResponse__Output>;
  /** The error that the stream ended with. */
  readonly ended: Promise<WatchFanoutError>;
  readonly status: Promise<StatusObject>;

  constructor(call: ClientDuplexStream<KeepAliveRequest, KeepAliveResponse__Output>) {
    this.#call = call;
    this.#iterator = call[Symbol.asyncIterator]();
    this.ended = new Promise((resolve) => {
      call.on("error", (error) => resolve(errorOf(error as ServiceError)));
    });
    this.status = new Promise((resolve) => {
      call.on("status", resolve);
    });
  }

  send(...leases: readonly (string | bigint)[]): void {
    this.#call.write({ leases: leases.map(String) });
  }

  /** The next response: for each lease how long it lasts in milliseconds, or the text of its error. */
  async next(): Promise<(number | string)[]> {
    const { value, done } = await this.#iterator.next();
    if (done === true) throw new Error("The stream has ended.");
    const { renewals } = value as KeepAliveResponse__Output;
    return renewals.map(({ ttl, error }) =>
      ttl === null ? (error?.message ?? "") : Number(ttl.seconds) * 1_000 + ttl.nanos / 1e6,
    );
  }

  renew(...leases: readonly (string | bigint)[]): Promise<(number | string)[]> {
    this.send(...leases);
    return this.next();
  }

  halfClose(): void {
    this.#call.end();
  }

  close(): void {
    this.#call.cancel();
  }
}
