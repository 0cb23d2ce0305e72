import type { Readable } from "node:stream";
import { InterceptingCall, type Interceptor } from "@grpc/grpc-js";

/**
 * Makes grpc-js hold at most one further message of a call that is paused: its streams read 16 messages ahead, whatever
 * the size of each. Used for one call.
 */
export class PausedRead {
  #call: Readable | undefined;
  /** Passes on the message that has come since the call was paused. */
  #held: (() => void) | undefined;

  /** grpc-js reads the next message only once the one before has been passed on. */
  readonly interceptor: Interceptor = (options, nextCall) =>
    new InterceptingCall(nextCall(options), {
      start: (metadata, _listener, next) => {
        next(metadata, {
          onReceiveMessage: (message, passOn) => {
            if (this.#call?.isPaused() === true) this.#held = () => passOn(message);
            else passOn(message);
          },
        });
      },
      // The status of a call waits for its messages.
      cancel: (next) => {
        this.#passOn();
        next();
      },
    });

  /** The call that has the interceptor. */
  attach(call: Readable): void {
    this.#call = call;
    call.on("resume", () => this.#passOn());
  }

  #passOn(): void {
    const held = this.#held;
    this.#held = undefined;
    held?.();
  }
}
