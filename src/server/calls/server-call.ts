import type { Readable } from "node:stream";
import type { status } from "@grpc/grpc-js";
import type { Identity } from "../../identity/identity.ts";
import type { FrameParts } from "../../wire/encode.ts";
import type { Encoding } from "../../wire/encoding.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { CallOwner } from "../limits/callers.ts";
import type { CallRecord } from "./audit.ts";
import type { CallSpan } from "./call-span.ts";

/**
 * A call whose request has been read: one message in, and one message or a stream of messages out. `Http2Call` serves it
 * on its HTTP/2 stream, at a low cost. `GrpcJsCall` serves it with grpc-js's public API alone.
 */
export interface ServerCall {
  /** Its client's connection: what the client makes the process hold or do is counted by this. */
  readonly connection: object;
  /** The caller. Anonymous until the call has been authenticated, which is before it is admitted. */
  readonly identity: Identity;
  /** Whose turns it takes, and whose limits it counts against. Ask for it once the call has been authenticated. */
  readonly owner: CallOwner;
  /** The client's IP address and port, for the audit; empty if its connection has been closed. */
  readonly address: string;
  /** The id of its trace, which is the client's if the client has sent one; undefined: the call is not part of a trace. */
  readonly traceId: string | undefined;
  /** Its span, until that has ended. Undefined: it is not traced, or its stream is open. */
  span: CallSpan | undefined;
  /** Its record for the audit, until that is made. Undefined: it is not audited, or was recorded. */
  record: CallRecord | undefined;
  /**
   * The metadata with the relays that the call has passed (`viaKey`); undefined: it comes from a client. A stream does not
   * retain it once it has been checked.
   */
  via: string | undefined;
  /** How its responses may be compressed, which their headers say. Undefined: they may not. */
  readonly encoding?: Encoding | undefined;
  /** Size of its request, in bytes; an upper bound where the exact size is not known. */
  readonly requestBytes: number;
  /** Memory of the headers that are retained while the call is open, in bytes. */
  readonly headerBytes: number;
  /** When its deadline passes, in the clock's milliseconds; undefined: no deadline. The call ends itself then. */
  readonly deadline: number | undefined;
  /** Whether it has ended, or ends without further action. */
  readonly isOver: boolean;
  /**
   * Calls `listener` once when the client has cancelled or disconnected, or the deadline has passed. Replaces the
   * listener that was set before.
   */
  onOver(listener: () => void): void;
  /**
   * Calls `listener` once when nothing is held any more of what was sent, at once if that is so already. Replaces the
   * listener that was set before.
   */
  onClosed(listener: () => void): void;
  /**
   * Sends the next response of a stream if the client's flow control and its connection take it at once, and nothing that
   * was sent is outstanding. It is accepted then. `isFollowed`: another one follows at once, and both are written together.
   * Returns false, without effect, otherwise: use `send`.
   */
  sendAtOnce(frame: Uint8Array, isFollowed: boolean): boolean;
  /**
   * Sends the next response of a stream. Calls `onAccepted` when the client's flow control has accepted it, or with the
   * error that prevents that. Does nothing on a call that is over.
   */
  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void;
  /** Whether `sendParts` also takes several messages at once, one behind the other. Absent: it takes one. */
  readonly sendsSeveral?: boolean;
  /** As `send`, for a message in consecutive parts. */
  sendParts(parts: FrameParts, onAccepted: (error?: Error | null) => void): void;
  /**
   * What is held for messages until they are accepted, in the form in which they are sent as well. `isOneMessage`: they are
   * parts of one. Absent: nothing else.
   */
  heldFor?(frames: FrameParts, isOneMessage: boolean): FrameParts;
  /**
   * Drops the response that was sent last and is outstanding, unless a part of it has been passed on: then the status of
   * `end` reaches a client that accepts nothing. `onAccepted` is not called. Returns whether it was dropped.
   */
  withdraw(): boolean;
  /** Sends the response of a unary call, and ends it. Returns the parts that are held until the call is closed. */
  respond(parts: FrameParts): FrameParts;
  /** Ends the call behind the responses that were sent. A client that does not accept them is reset after a while. */
  end(status: WireStatus): void;
  /** Closes the client's connection once its calls have ended. Idempotent. */
  closeConnection(): void;
  /**
   * Ends the call at once, and drops the responses that were not accepted. Clients see RESOURCE_EXHAUSTED, those of a
   * raw method that may be repeated UNAVAILABLE.
   */
  reset(): void;
}

/** What the request of a call is read from, or its requests. */
export interface RequestBody {
  readonly stream: Readable;
  /** The compression of those messages that have the compressed flag, by its name in gRPC. */
  readonly encoding: string;
  /** Whether it is one message without gRPC's prefix, which is compressed as a whole. Default: no. */
  readonly isBare?: boolean;
  /** Maximum size of a message, in bytes. Default: that of the method. */
  readonly maxBytes?: number;
  /** The code of a message that can't be inflated. Default: INTERNAL, that of gRPC. */
  readonly corruptCode?: status | undefined;
}

/**
 * Reads the next request of a stream of requests; undefined: there are no more. Nothing is read ahead. Rejects with a
 * `RefusedRequest`.
 */
export type NextRequest = () => Promise<Buffer | undefined>;

/** A request is invalid or late, or was evicted. The call ends with the status. */
export class RefusedRequest extends Error {
  readonly status: WireStatus;

  constructor(status: WireStatus) {
    super(status.details);
    this.status = status;
  }
}
