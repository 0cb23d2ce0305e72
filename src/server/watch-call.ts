import type { WireStatus } from "../wire/errors.ts";

/**
 * A call of Watch whose request has been read. There are two kinds: `Http2WatchCall`, which costs little,
 * and `GrpcJsWatchCall`, which needs nothing but grpc-js's public API.
 */
export interface WatchCall {
  /** When its client gives up, by the clock; undefined: never. The call ends itself then. */
  readonly deadline: number | undefined;
  /** Whether it has ended, or is about to without anybody's doing. */
  readonly isOver: boolean;
  /** Has `listener` called once when the client is gone or the deadline has passed. */
  onOver(listener: () => void): void;
  /**
   * Sends one frame, which is a message with gRPC's prefix. `onAccepted` is told when the client's flow
   * control has let it pass, or why it never will; nothing is told of a call that is over.
   */
  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void;
  /** Ends the call behind what is on its way, which a client that takes nothing loses after a while. */
  end(status: WireStatus): void;
}
