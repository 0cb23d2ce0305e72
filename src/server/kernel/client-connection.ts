/** A connection that can be ended: a session of HTTP/2, or a connection with HTTP/1. */
export interface ClientConnection {
  /** Whether it takes no more calls. */
  readonly closed: boolean;
  readonly destroyed: boolean;
  /** Ends it once its calls have ended. Idempotent. */
  close(): void;
  destroy(): void;
  once(event: "close", listener: () => void): unknown;
}
