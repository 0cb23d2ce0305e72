import type { JWTVerifyGetKey } from "jose";
import * as errors from "jose/errors";
import { createLocalJWKSet } from "jose/jwks/local";
import type { Logger } from "pino";
import { z } from "zod";
import type { Clock, Timer } from "../base/clock.ts";
import { messageOf, upstreamUnavailable } from "../base/errors.ts";

/** Maximum size of a JSON Web Key Set, in bytes. */
export const maxKeySetBytes = 1024 ** 2;

/** Maximum number of keys in a set. */
const maxKeys = 100;

/** Maximum duration of a request for the keys, in milliseconds. */
const requestTimeoutMs = 5_000;

/** Interval at which keys are requested again, in milliseconds, so that a withdrawn key is forgotten. */
const refreshIntervalMs = 10 * 60_000;

/** Minimum time between two requests because of unknown keys, in milliseconds. Any client can name an unknown key. */
const minRequestIntervalMs = 10_000;

/** The public keys that a token issuer signs with. */
export interface KeySet {
  /**
   * Finds the key of a token among those that are known, without waiting for the issuer. Rejects with KeysAwaited if it may
   * be among those that are being requested; otherwise with an error of jose if it does not exist, or with
   * UPSTREAM_UNAVAILABLE.
   */
  readonly find: JWTVerifyGetKey;
  /** Calls `listener` whenever the keys have changed. */
  onChange(listener: () => void): void;
}

/** The key of a token may be among those that are being requested from the issuer. */
export class KeysAwaited extends Error {
  override readonly name = "KeysAwaited";
  /** Resolves when the request has ended, within its time limit, and never rejects. Then find the key again. */
  readonly requested: Promise<void>;

  constructor(requested: Promise<void>) {
    super("The keys of the token issuer are being requested.");
    this.requested = requested;
  }
}

const webKeys = z.object({ keys: z.array(z.looseObject({ kty: z.string() })).max(maxKeys) });

/**
 * Parses a JSON Web Key Set (RFC 7517). Symmetric keys are left out, since a verifier of such a key could sign with it as
 * well. Throws an Error with a sentence if it is no key set, has a private key, or has no public key.
 */
export function parseKeySet(content: Uint8Array): JWTVerifyGetKey {
  const { data } = webKeys.safeParse(jsonOf(content));
  if (data === undefined) {
    throw new Error(`is not a JSON Web Key Set, {"keys": [...]}, with at most ${maxKeys} keys.`);
  }
  const keys = data.keys.filter(({ kty }) => kty !== "oct");
  if (keys.some((key) => "d" in key)) {
    throw new Error("has a private key; it must have the public keys of the issuer only.");
  }
  if (keys.length === 0) throw new Error("has no public key.");
  return createLocalJWKSet({ keys });
}

function jsonOf(content: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(content).toString("utf8"));
  } catch {
    return undefined;
  }
}

/** Keys from a file. */
export class FileKeySet implements KeySet {
  #keys: JWTVerifyGetKey;
  #onChange: () => void = () => {};

  constructor(keys: JWTVerifyGetKey) {
    this.#keys = keys;
  }

  readonly find: JWTVerifyGetKey = (header, token) => this.#keys(header, token);

  onChange(listener: () => void): void {
    this.#onChange = listener;
  }

  replace(keys: JWTVerifyGetKey): void {
    this.#keys = keys;
    this.#onChange();
  }
}

/** Requests the content of a URL. Rejects with an Error that says why. */
export type FetchContent = (url: URL, maxBytes: number, signal: AbortSignal) => Promise<Buffer>;

export interface RemoteKeySetOptions {
  readonly url: URL;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Default: HTTP, without redirects. */
  readonly fetch?: FetchContent | undefined;
}

/** How often keys were requested. */
export interface KeyRequestCounts {
  readonly succeeded: number;
  readonly failed: number;
}

/**
 * Keys from a URL. They are requested at start, every 10 minutes, and when a token names an unknown key, but then at most
 * every 10 s. If a request fails, the keys from before stay in use.
 */
export class RemoteKeySet implements KeySet {
  readonly #options: RemoteKeySetOptions;
  readonly #closing = new AbortController();
  #keys: JWTVerifyGetKey | undefined;
  #content: Buffer = Buffer.alloc(0);
  #request: Promise<void> | undefined;
  #requestedAt = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;
  #onChange: () => void = () => {};
  readonly #counts = { succeeded: 0, failed: 0 };

  /** Begins to request the keys. */
  constructor(options: RemoteKeySetOptions) {
    this.#options = options;
    this.#refreshPeriodically();
  }

  get counts(): KeyRequestCounts {
    return this.#counts;
  }

  onChange(listener: () => void): void {
    this.#onChange = listener;
  }

  readonly find: JWTVerifyGetKey = async (header, token) => {
    const keys = this.#keys;
    if (keys !== undefined) {
      try {
        return await keys(header, token);
      } catch (error) {
        if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      }
    }
    const requested = this.#refreshForUnknown();
    if (requested !== undefined) throw new KeysAwaited(requested);
    if (keys === undefined) {
      throw upstreamUnavailable(
        "The token can't be verified, because the keys of its issuer (--jwt-jwks) can't be fetched. Try again.",
      );
    }
    throw new errors.JWKSNoMatchingKey();
  };

  /** Ends requests. Idempotent. */
  close(): void {
    this.#timer?.cancel();
    this.#closing.abort();
  }

  #refreshPeriodically(): void {
    void this.#refresh();
    this.#timer = this.#options.clock.setTimeout(
      () => this.#refreshPeriodically(),
      refreshIntervalMs,
    );
  }

  /** The request that is in progress or due; undefined: none. */
  #refreshForUnknown(): Promise<void> | undefined {
    const isDue = this.#options.clock.now() - this.#requestedAt >= minRequestIntervalMs;
    return this.#request !== undefined || isDue ? this.#refresh() : undefined;
  }

  /** Requests the keys. Concurrent callers share one request. Never rejects. */
  #refresh(): Promise<void> {
    this.#request ??= this.#load().finally(() => {
      this.#request = undefined;
    });
    return this.#request;
  }

  async #load(): Promise<void> {
    const { url, clock, logger, fetch = fetchContent } = this.#options;
    if (this.#closing.signal.aborted) return;
    this.#requestedAt = clock.now();
    const late = new AbortController();
    const seconds = requestTimeoutMs / 1_000;
    const timer = clock.setTimeout(
      () => late.abort(new Error(`no response within ${seconds} s`)),
      requestTimeoutMs,
    );
    const signal = AbortSignal.any([late.signal, this.#closing.signal]);
    try {
      const content = await fetch(url, maxKeySetBytes, signal);
      this.#counts.succeeded++;
      if (content.equals(this.#content)) return;
      this.#keys = parseKeySet(content);
      this.#content = content;
      this.#onChange();
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      this.#counts.failed++;
      const problem = messageOf(error);
      const text = "can't fetch the keys of the token issuer; the keys from before stay in use";
      // Without a query, which could have a secret.
      logger.warn({ url: url.origin + url.pathname, problem }, text);
    } finally {
      timer.cancel();
    }
  }
}

async function fetchContent(url: URL, maxBytes: number, signal: AbortSignal): Promise<Buffer> {
  // A redirect could lead anywhere, and the keys decide on every identity.
  const response = await fetch(url, { signal, redirect: "error" });
  if (!response.ok) throw new Error(`the server responds with status ${response.status}`);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > maxBytes) throw new Error(`the response has more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
