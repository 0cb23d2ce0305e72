import { messageOf } from "../../../base/errors.ts";
import type { Logger } from "../../../base/logger.ts";
import { emitWarning } from "../../../base/warning.ts";
import type { ReflectorFailure } from "../../../reflector/reflector.ts";
import { ClosedError } from "../../calls/call-failure.ts";
import type { DecodeFailure } from "../../values/typed-object.ts";
import type { IndexError } from "../indexer/object-index.ts";

/** An object could not be added to the Indexer. If it has an earlier state of the object, that remains. */
export type RejectedObjectError = DecodeFailure | TransformFailure | IndexError;

/** An error in an informer. The informer continues, except after an InformerFault. */
export type InformerError = RejectedObjectError | HandlerError | InformerFault;

/** A transform threw. `cause` is what it threw. */
export class TransformFailure extends Error {
  override readonly name = "TransformFailure";
  /** The key of the object. */
  readonly key: string;

  constructor(key: string, modRevision: number, cause: unknown) {
    super(`The transform failed at ${quoted(key)}, revision ${modRevision}: ${messageOf(cause)}`, {
      cause,
    });
    this.key = key;
  }
}

/** A handler threw or rejected. The call is not repeated. `cause` is what it threw. */
export class HandlerError extends Error {
  override readonly name = "HandlerError";
  /** The name of the handler. */
  readonly handler: string;
  /** The key of the object. */
  readonly key: string;

  constructor(handler: string, key: string, cause: unknown) {
    super(`The handler ${quoted(handler)} failed at ${quoted(key)}: ${messageOf(cause)}`, {
      cause,
    });
    this.handler = handler;
    this.key = key;
  }
}

/**
 * A bug in watch-fanout, or an error of a Storage that the contract of Storage does not allow. The informer has
 * stopped.
 */
export class InformerFault extends Error {
  override readonly name = "InformerFault";

  constructor(informer: string, cause: unknown) {
    super(`The informer ${quoted(informer)} can't continue: ${messageOf(cause)}`, { cause });
  }
}

/** The informer was stopped, or the handler removed, before the condition that was waited for. */
export class InformerStopped extends Error {
  override readonly name = "InformerStopped";
}

function quoted(text: string): string {
  return JSON.stringify(text);
}

/** What an informer calls its listeners with. */
interface Reports {
  readonly onError: InformerError;
  readonly onWatchError: ReflectorFailure;
  readonly onRecovered: undefined;
}

/** The listeners of one part of the application. */
type Listeners = {
  readonly [Kind in keyof Reports]?: ((report: Reports[Kind]) => void) | undefined;
};

/** Passes reports to the application's listeners, or else to its logger or process warnings. Never throws. */
export class InformerReports {
  /** Those of each part of the application. */
  readonly #listeners = new Set<Listeners>();
  readonly #logger: Logger | undefined;
  readonly #warnings: WatchWarnings;

  /** `name` is that of the informer. */
  constructor(name: string, logger: Logger | undefined) {
    this.#logger = logger;
    this.#warnings = new WatchWarnings(name);
  }

  /** Returns a function that removes the listeners. */
  listen(listeners: Listeners): () => void {
    this.#listeners.add(listeners);
    return () => this.#listeners.delete(listeners);
  }

  failed(error: InformerError): void {
    if (!this.#call("onError", error)) this.#fallBack(error, error.message);
  }

  /** Returns whether there is a listener for errors. */
  faulted(fault: InformerFault): boolean {
    return this.#call("onError", fault);
  }

  interrupted(failure: ReflectorFailure): void {
    // A logger has it anyway.
    if (this.#call("onWatchError", failure) || this.#logger !== undefined) return;
    if (failure.error instanceof ClosedError) this.#warnings.stopped(failure.error.message);
    else this.#warnings.failed(failure);
  }

  recovered(): void {
    this.#call("onRecovered", undefined);
  }

  /** Calls every listener of this kind. Returns whether there is one. */
  #call<Kind extends keyof Reports>(kind: Kind, report: Reports[Kind]): boolean {
    let isHeard = false;
    for (const listeners of [...this.#listeners]) {
      const listener = listeners[kind];
      if (listener === undefined) continue;
      isHeard = true;
      try {
        listener(report);
      } catch (error) {
        this.#fallBack(error, "a listener of the informer threw");
      }
    }
    return isHeard;
  }

  #fallBack(error: unknown, message: string): void {
    if (this.#logger !== undefined) this.#logger.error({ err: error }, message);
    else emitWarning(error instanceof Error ? error : String(error));
  }
}

/** Number of failures in a row before a warning: an interruption that requires a relist already counts two. */
const worthSaying = 3;

/**
 * Warns when an informer can't list or watch and the application has neither a logger nor a listener: it would
 * otherwise wait without any sign. A single interruption is normal and gives no warning.
 */
export class WatchWarnings {
  readonly #informer: string;
  readonly #warn: (message: string) => void;
  #revision: number | undefined;
  /** Number of failures since the last progress. */
  #inARow = 0;
  #said: string | undefined;

  /** `warn` is `process.emitWarning` by default. */
  constructor(
    informer: string,
    warn: (message: string) => void = (message) => emitWarning(message, "InformerWarning"),
  ) {
    this.#informer = informer;
    this.#warn = warn;
  }

  /** Warns at the third failure in a row, and at later ones only if their message differs. */
  failed(failure: ReflectorFailure): void {
    const { message, reason } = failure.error;
    // A normal shutdown of a replica.
    if (reason === "DRAINING") return;
    if (failure.revision !== this.#revision) {
      this.#inARow = 0;
      this.#said = undefined;
    }
    this.#revision = failure.revision;
    this.#inARow++;
    if (this.#inARow < worthSaying || this.#said === message) return;
    this.#said = message;
    this.#warn(
      `The informer ${JSON.stringify(this.#informer)} can't list or watch, and keeps trying: ${message}`,
    );
  }

  /** Warns that the informer has stopped although the application has not stopped it. */
  stopped(message: string): void {
    this.#warn(`The informer ${JSON.stringify(this.#informer)} has stopped: ${message}`);
  }
}
