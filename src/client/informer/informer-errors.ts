import type { DecodeFailure } from "../typed-object.ts";
import type { IndexError } from "./object-index.ts";

/**
 * What went wrong in what the user has given an informer. It goes on: of an object that could not be taken
 * in (its value can't be decoded, or its transform or an index function failed) it keeps the one that it had.
 */
export type InformerError = DecodeFailure | TransformFailure | IndexError | HandlerError;

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
