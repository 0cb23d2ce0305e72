import type { DecodeFailure } from "../../values/typed-object.ts";
import type { IndexError } from "../indexer/object-index.ts";

/** An object could not be taken in. If the informer had it before, it keeps it as it was. */
export type RejectedObjectError = DecodeFailure | TransformFailure | IndexError;

/** What went wrong in an informer. It goes on, but after an InformerFault. */
export type InformerError = RejectedObjectError | HandlerError | InformerFault;

/** A transform failed. */
export class TransformFailure extends Error {
  override readonly name = "TransformFailure";
  readonly key: string;

  constructor(key: string, modRevision: number, cause: unknown) {
    super(`The transform failed at ${quoted(key)}, revision ${modRevision}: ${textOf(cause)}`, {
      cause,
    });
    this.key = key;
  }
}

/** A call of a handler threw or rejected. It is not made again. */
export class HandlerError extends Error {
  override readonly name = "HandlerError";
  readonly handler: string;
  readonly key: string;

  constructor(handler: string, key: string, cause: unknown) {
    super(`The handler ${quoted(handler)} failed at ${quoted(key)}: ${textOf(cause)}`, { cause });
    this.handler = handler;
    this.key = key;
  }
}

/**
 * A fault in watch-fanout, or a Storage that failed with what no Storage may fail with. The informer has stopped
 * at it.
 */
export class InformerFault extends Error {
  override readonly name = "InformerFault";

  constructor(informer: string, cause: unknown) {
    super(`The informer ${quoted(informer)} can't go on: ${textOf(cause)}`, { cause });
  }
}

/** Something can't be had any more, as the informer was stopped or the handler removed. */
export class InformerStopped extends Error {
  override readonly name = "InformerStopped";
}

function quoted(text: string): string {
  return JSON.stringify(text);
}

function textOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
