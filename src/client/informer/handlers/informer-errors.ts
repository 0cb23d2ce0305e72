import { messageOf } from "../../../base/errors.ts";
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
