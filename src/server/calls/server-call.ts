import type { Decoded } from "../../wire/decode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";

/**
 * A call whose request has been read: one message there; one, or a stream of them, back. There are two
 * kinds: `Http2Call`, which costs little, and `GrpcJsCall`, which needs nothing but grpc-js's public API.
 */
export interface ServerCall {
  /** Its client's connection: what the client makes the process hold or do is counted by this. */
  readonly connection: object;
  /** How many bytes its request takes, at the most. */
  readonly requestBytes: number;
  /** When its client gives up, by the clock; undefined: never. The call ends itself then. */
  readonly deadline: number | undefined;
  /** Whether it has ended, or is about to without anybody's doing. */
  readonly isOver: boolean;
  /**
   * Has `listener` called once when the client is gone or the deadline has passed, in place of the one
   * that was given before.
   */
  onOver(listener: () => void): void;
  /**
   * Has `listener` called once when nothing that was sent is held for the client any more, in place of the one
   * that was given before. At once if that is so already.
   */
  onClosed(listener: () => void): void;
  /**
   * Sends the next response of a stream. `onAccepted` is told when the client's flow control has let it
   * pass, or why it never will; nothing is told of a call that is over.
   */
  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void;
  /** Sends the one response of a call that is no stream, and ends it. Returns what is held until it is closed. */
  answer(parts: FrameParts): FrameParts;
  /** Ends the call behind what is on its way, which a client that takes nothing loses after a while. */
  end(status: WireStatus): void;
  /** Ends the call at once and drops what is on its way. Clients see RESOURCE_EXHAUSTED. */
  reset(): void;
}

/** How one method with one request is served. */
export interface ServedMethod {
  readonly decode: (message: Uint8Array) => Decoded<unknown>;
  /** Never throws. */
  readonly serve: (call: ServerCall, request: Decoded<unknown>) => void;
}

/**
 * The requests of a stream of them, one after the other; undefined: there are no more. Nothing is read ahead. Rejects
 * with a `RefusedRequest`.
 */
export type NextRequest = () => Promise<Buffer | undefined>;

/** How one method with a stream of requests is served. */
export interface BidiMethod {
  /** The largest request, in bytes. */
  readonly maxRequestBytes: number;
  /** Never throws. */
  readonly converse: (call: ServerCall, next: NextRequest) => void;
}

/** A stream has sent what is no request, or none in time, and is to be ended with this. */
export class RefusedRequest extends Error {
  readonly status: WireStatus;

  constructor(status: WireStatus) {
    super(status.details);
    this.status = status;
  }
}
