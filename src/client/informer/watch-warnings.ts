import type { ReflectorFailure } from "../../reflector/reflector.ts";

/** So many in a row: a watch that breaks may well find that it has to begin anew, which is two. */
const worthSaying = 3;

/**
 * Says that an informer can't list or watch where nobody has asked to be told, as it would else wait in silence, for
 * ever if need be. That a watch breaks is nothing special, and is not worth a warning: that it can't go on is.
 */
export class WatchWarnings {
  readonly #informer: string;
  readonly #warn: (message: string) => void;
  #revision: number | undefined;
  /** How many failures have come since anything else did. */
  #inARow = 0;
  #said: string | undefined;

  /** `warn` is a warning of the process, unless given. */
  constructor(
    informer: string,
    warn: (message: string) => void = (message) => process.emitWarning(message, "InformerWarning"),
  ) {
    this.#informer = informer;
    this.#warn = warn;
  }

  /** Warns of the third failure in a row, and of later ones only where they say something else. */
  failed(failure: ReflectorFailure): void {
    const { message, reason } = failure.error;
    // In order, and every now and then by design.
    if (reason === "DRAINING") return;
    if (failure.revision !== this.#revision) {
      this.#inARow = 0;
      this.#said = undefined;
    }
    this.#revision = failure.revision;
    this.#inARow++;
    if (this.#inARow < worthSaying || this.#said === message) return;
    this.#said = message;
    this.#warn(`The informer ${JSON.stringify(this.#informer)} waits and tries again: ${message}`);
  }

  /** Warns at once: nobody has stopped it, and it does not go on. */
  stopped(message: string): void {
    this.#warn(`The informer ${JSON.stringify(this.#informer)} has stopped: ${message}`);
  }
}
