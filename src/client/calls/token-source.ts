import { open } from "node:fs/promises";
import { Metadata } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { invalidRequest, messageOf, WatchFanoutError } from "../../base/errors.ts";
import { within } from "../../base/wait.ts";
import { viaKey } from "../../wire/via.ts";
import { CallFailure } from "./call-failure.ts";

/**
 * The bearer token of every call: a text, a file that is read again as it changes (such as a mounted token of a
 * Kubernetes service account), or a function that is called for each call and stream and should cache its result.
 */
export type Token = string | { readonly file: string } | (() => string | Promise<string>);

/** Maximum size of a token, in bytes: servers accept no larger headers. */
const maxTokenBytes = 16 * 1024;

/** How long a token from a file is used before the file is read again, in milliseconds. */
const rereadMs = 1_000;

/** Provides the metadata of calls. */
export class TokenSource {
  readonly #token: Token | undefined;
  readonly #clock: Clock;
  readonly #relayId: string | undefined;
  /** The metadata for the last token, which most calls share. */
  #metadata: Metadata;
  #last: string | undefined;
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<Metadata> | undefined;

  /**
   * `relayId`: the instance id of the relay that makes the calls; undefined: none does. Throws INVALID_REQUEST for a text
   * that can't be a token.
   */
  constructor(token: Token | undefined, clock: Clock, relayId?: string) {
    this.#token = token;
    this.#clock = clock;
    this.#relayId = relayId;
    this.#metadata = this.#ofRelay();
    if (typeof token !== "string") return;
    if (!isToken(token)) throw invalidRequest("token", malformed("token"));
    this.#metadata = this.#with(token);
  }

  /**
   * The metadata of the next call. Rejects with a CallFailure, UNAUTHENTICATED, if there is no token within `timeoutMs`
   * milliseconds, and with the signal's reason when it is aborted. `via`: the relays that the request has passed.
   */
  async metadata(
    timeoutMs: number,
    signal: AbortSignal | undefined,
    via?: string,
  ): Promise<Metadata> {
    const metadata = await this.#current(timeoutMs, signal);
    if (via === undefined || this.#relayId === undefined) return metadata;
    const passedOn = metadata.clone();
    passedOn.set(viaKey, `${via},${this.#relayId}`);
    return passedOn;
  }

  /** The token that a call would have now; undefined: none. Rejects as `metadata` does. */
  async token(timeoutMs: number, signal: AbortSignal): Promise<string | undefined> {
    await this.#current(timeoutMs, signal);
    return this.#last;
  }

  async #current(timeoutMs: number, signal: AbortSignal | undefined): Promise<Metadata> {
    const token = this.#token;
    if (token === undefined || typeof token === "string") return this.#metadata;
    if (typeof token === "function") {
      return this.#bounded(this.#called(token), timeoutMs, signal);
    }
    if (this.#clock.now() - this.#readAt < rereadMs) return this.#metadata;
    this.#reading ??= this.#read(token.file).finally(() => {
      this.#reading = undefined;
    });
    return this.#bounded(this.#reading, timeoutMs, signal);
  }

  #bounded(
    metadata: Promise<Metadata>,
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Metadata> {
    const expire = (): never => {
      throw noToken(`There is no token after ${Math.ceil(timeoutMs)} ms.`);
    };
    return within(metadata, { signal, deadline: { clock: this.#clock, ms: timeoutMs, expire } });
  }

  async #called(token: () => string | Promise<string>): Promise<Metadata> {
    let text: string;
    try {
      text = await token();
    } catch (error) {
      throw noToken("The function that provides the token has failed.", error);
    }
    if (!isToken(text)) throw noToken(malformed("result of the token function"));
    return this.#with(text);
  }

  async #read(path: string): Promise<Metadata> {
    let text: string;
    try {
      text = await readStart(path);
    } catch (error) {
      throw noToken(`The token can't be read from ${path}: ${messageOf(error)}.`, error);
    }
    if (!isToken(text)) throw noToken(malformed(`content of ${path}`));
    this.#readAt = this.#clock.now();
    return this.#with(text);
  }

  #with(token: string): Metadata {
    if (token === this.#last) return this.#metadata;
    this.#last = token;
    this.#metadata = this.#ofRelay();
    this.#metadata.set("authorization", `Bearer ${token}`);
    return this.#metadata;
  }

  #ofRelay(): Metadata {
    const metadata = new Metadata();
    if (this.#relayId !== undefined) metadata.set(viaKey, this.#relayId);
    return metadata;
  }
}

/** The content of a small file without the white space around it. A larger file is not read completely. */
async function readStart(path: string): Promise<string> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(maxTokenBytes + 1), 0);
    return buffer.toString("utf8", 0, bytesRead).trim();
  } finally {
    await file.close();
  }
}

function isToken(text: unknown): text is string {
  return typeof text === "string" && text.length <= maxTokenBytes && /^[\x21-\x7e]+$/.test(text);
}

/** Without the text, which may be almost a token. */
function malformed(what: string): string {
  return `The ${what} is not a token: at most ${maxTokenBytes} printable ASCII characters without spaces.`;
}

function noToken(message: string, cause?: unknown): CallFailure {
  return new CallFailure(new WatchFanoutError("UNAUTHENTICATED", message, { cause }));
}
