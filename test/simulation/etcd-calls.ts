import { RawGrpc, statusOf } from "../etcd-api/raw-grpc.ts";
import type { Seeded } from "../faults/seeded.ts";
import { Message } from "../foreign/protobuf.ts";

/** How long a call may take, in milliseconds. */
const callMs = 6_000;

/** Codes of a failure that no fault explains: INTERNAL, UNKNOWN, UNIMPLEMENTED, INVALID_ARGUMENT. */
const neverCodes: ReadonlySet<string> = new Set(["13", "2", "12", "3"]);

interface EtcdCallsOptions {
  /** Where etcd's API is served. */
  readonly urls: readonly string[];
  readonly random: Seeded;
  /** Gets the failures that no fault explains. */
  readonly wrong: string[];
}

/** The calls of one client of etcd's API, one after the other: at one replica, until a call fails there. */
export class EtcdCalls {
  readonly #options: EtcdCallsOptions;
  #grpc: RawGrpc | undefined;

  constructor(options: EtcdCallsOptions) {
    this.#options = options;
  }

  /** The connection in use. */
  get grpc(): RawGrpc {
    const { random, urls } = this.#options;
    this.#grpc ??= new RawGrpc(random.pick(urls));
    return this.#grpc;
  }

  /** Resolves to undefined if it failed. */
  async unary(path: string, request: Buffer): Promise<Message | undefined> {
    const { grpc } = this;
    const response = await this.within(async () => {
      const answered = await grpc.unary(path, request);
      const { code, message } = statusOf(answered);
      if (code === "0") return new Message(answered.body.subarray(5));
      if (neverCodes.has(code)) {
        this.#options.wrong.push(`EtcdCall: ${path} failed with ${code}: ${message}`);
      }
      return undefined;
    });
    if (response === undefined) this.close();
    return response;
  }

  /** Resolves to undefined if the connection is lost meanwhile, or it takes too long, which loses the connection. */
  async within<T>(call: () => Promise<T>): Promise<T | undefined> {
    const { grpc } = this;
    const timeout = setTimeout(() => grpc.close(), callMs);
    try {
      return await call();
    } catch {
      return undefined;
    } finally {
      clearTimeout(timeout);
    }
  }

  /** The next call is made at another replica. */
  close(): void {
    this.#grpc?.close();
    this.#grpc = undefined;
  }
}
