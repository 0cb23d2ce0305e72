import type { Logger } from "../../base/logger.ts";
import type { InformerError, InformerFault } from "./handlers/informer-errors.ts";

/** Passes errors to the application's listener, logger or process warnings. Never throws. */
export class ErrorReporter {
  readonly #onError: ((error: InformerError) => void) | undefined;
  readonly #logger: Logger | undefined;

  constructor(onError: ((error: InformerError) => void) | undefined, logger: Logger | undefined) {
    this.#onError = onError;
    this.#logger = logger;
  }

  /** Calls a listener of the application. */
  call(listener: () => void): void {
    try {
      listener();
    } catch (error) {
      this.#fallBack(error, "a listener of the informer threw");
    }
  }

  report(error: InformerError): void {
    const onError = this.#onError;
    if (onError === undefined) this.#fallBack(error, error.message);
    else this.call(() => onError(error));
  }

  /** Returns whether there is a listener for errors. */
  reportFault(fault: InformerFault): boolean {
    const onError = this.#onError;
    if (onError !== undefined) this.call(() => onError(fault));
    return onError !== undefined;
  }

  #fallBack(error: unknown, message: string): void {
    if (this.#logger !== undefined) this.#logger.error({ err: error }, message);
    else process.emitWarning(error instanceof Error ? error : String(error));
  }
}
