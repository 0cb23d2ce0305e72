import type { Clock } from "../../base/clock.ts";
import { invalidRequest, messageOf, WatchFanoutError } from "../../base/errors.ts";
import { within } from "../../base/wait.ts";
import { isToken, maxTokenBytes, tokenRule } from "../../wire/bearer-token.ts";
import { viaKey } from "../../wire/via.ts";
import type { Platform } from "../transport/platform.ts";
import type { CallHeaders } from "../transport/transport.ts";
import { CallFailure } from "./call-failure.ts";

/**
 * The bearer token of every call: a text, a file that is read again as it changes (such as a mounted token of a
 * Kubernetes service account), or a function that is called for each call and stream and should cache its result.
 */
export type Token = string | { readonly file: string } | (() => string | Promise<string>);

/** How long a token from a file is used before the file is read again, in milliseconds. */
const rereadMs = 1_000;

/** Provides the headers of calls. */
export class TokenSource {
  readonly #token: Token | undefined;
  readonly #platform: Pick<Platform, "readTextFile">;
  readonly #clock: Clock;
  readonly #relayId: string | undefined;
  /** The headers for the last token, which most calls share. */
  #headers: CallHeaders;
  #last: string | undefined;
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<CallHeaders> | undefined;

  /**
   * `relayId`: the instance id of the relay that makes the calls; undefined: none does. Throws INVALID_REQUEST for a text
   * that can't be a token.
   */
  constructor(
    token: Token | undefined,
    platform: Pick<Platform, "readTextFile">,
    clock: Clock,
    relayId?: string,
  ) {
    this.#token = token;
    this.#platform = platform;
    this.#clock = clock;
    this.#relayId = relayId;
    this.#headers = this.#ofRelay();
    if (typeof token !== "string") return;
    if (!isToken(token)) throw invalidRequest("token", malformed("token"));
    this.#headers = this.#with(token);
  }

  /**
   * The headers of the next call. Rejects with a CallFailure, UNAUTHENTICATED, if there is no token within `timeoutMs`
   * milliseconds, and with the signal's reason when it is aborted. `via`: the relays that the request has passed.
   */
  async headers(
    timeoutMs: number,
    signal: AbortSignal | undefined,
    via?: string,
  ): Promise<CallHeaders> {
    const headers = await this.#current(timeoutMs, signal);
    if (via === undefined || this.#relayId === undefined) return headers;
    return { ...headers, [viaKey]: `${via},${this.#relayId}` };
  }

  /** The token that a call would have now; undefined: none. Rejects as `headers` does. */
  async token(timeoutMs: number, signal: AbortSignal): Promise<string | undefined> {
    await this.#current(timeoutMs, signal);
    return this.#last;
  }

  async #current(timeoutMs: number, signal: AbortSignal | undefined): Promise<CallHeaders> {
    const token = this.#token;
    if (token === undefined || typeof token === "string") return this.#headers;
    if (typeof token === "function") {
      return this.#bounded(this.#called(token), timeoutMs, signal);
    }
    if (this.#clock.now() - this.#readAt < rereadMs) return this.#headers;
    this.#reading ??= this.#read(token.file).finally(() => {
      this.#reading = undefined;
    });
    return this.#bounded(this.#reading, timeoutMs, signal);
  }

  #bounded(
    headers: Promise<CallHeaders>,
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<CallHeaders> {
    const expire = (): never => {
      throw noToken(`There is no token after ${Math.ceil(timeoutMs)} ms.`);
    };
    return within(headers, { signal, deadline: { clock: this.#clock, ms: timeoutMs, expire } });
  }

  async #called(token: () => string | Promise<string>): Promise<CallHeaders> {
    let text: string;
    try {
      text = await token();
    } catch (error) {
      throw noToken("The function that provides the token has failed.", error);
    }
    if (!isToken(text)) throw noToken(malformed("result of the token function"));
    return this.#with(text);
  }

  async #read(path: string): Promise<CallHeaders> {
    let text: string;
    try {
      text = (await this.#platform.readTextFile(path, maxTokenBytes + 1)).trim();
    } catch (error) {
      throw noToken(`The token can't be read from ${path}: ${messageOf(error)}.`, error);
    }
    if (!isToken(text)) throw noToken(malformed(`content of ${path}`));
    this.#readAt = this.#clock.now();
    return this.#with(text);
  }

  #with(token: string): CallHeaders {
    if (token === this.#last) return this.#headers;
    this.#last = token;
    this.#headers = { ...this.#ofRelay(), authorization: `Bearer ${token}` };
    return this.#headers;
  }

  #ofRelay(): CallHeaders {
    return this.#relayId === undefined ? {} : { [viaKey]: this.#relayId };
  }
}

function malformed(what: string): string {
  return `The ${what} is not a token: ${tokenRule}.`;
}

function noToken(message: string, cause?: unknown): CallFailure {
  return new CallFailure(new WatchFanoutError("UNAUTHENTICATED", message, { cause }));
}
