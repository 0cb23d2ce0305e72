import { type Clock, pause } from "../../base/clock.ts";
import { CallFailure } from "./call-failure.ts";
import type { Endpoint, Endpoints } from "./endpoints.ts";

/** Maximum number of copies that may be sent for reads of servers that are slow, and not silent. */
const maxTokens = 10;

/** What each read adds that needed no copy: if all servers are slow, copies are at most a tenth of all reads. */
const tokensPerRead = 0.1;

/** One attempt of a read. Ends without an effect on the server's ejection when `cancel` is aborted. */
type Attempt<T> = (endpoint: Endpoint, cancel: AbortSignal) => Promise<T | CallFailure>;

interface HedgedRead<T> {
  /** The server of the first attempt. */
  readonly first: Endpoint;
  readonly attempt: Attempt<T>;
  /** Called with the server of the copy, before that is sent. */
  readonly onCopy: (endpoint: Endpoint) => void;
}

/**
 * Sends a copy of a read to another server if the first one takes long, and uses the response that comes first, as
 * gRPC's hedging policy does (proposal A6). So a server that hangs does not take the whole timeout of a read. A server
 * that sent nothing at all meanwhile is ejected when the other one responds. Writes are never hedged.
 */
export class Hedging {
  readonly #endpoints: Endpoints;
  readonly #delayMs: number;
  readonly #clock: Clock;
  #tokens = maxTokens;

  /** `delayMs` is the time after which a copy is sent, in milliseconds; Infinity: never. */
  constructor(endpoints: Endpoints, delayMs: number, clock: Clock) {
    this.#endpoints = endpoints;
    this.#delayMs = delayMs;
    this.#clock = clock;
  }

  /** Whether copies may be sent at all. */
  get isEnabled(): boolean {
    return this.#endpoints.count > 1 && this.#delayMs < Number.POSITIVE_INFINITY;
  }

  /** Rejects as an attempt does. */
  async read<T>({ first, attempt, onCopy }: HedgedRead<T>): Promise<T | CallFailure> {
    const cancel = new AbortController();
    const { incidents, responses } = first;
    const original = attempt(first, cancel.signal);
    try {
      const second = await this.#secondServer(first, original);
      if (second === undefined) return await original;
      onCopy(second);
      const copy = attempt(second, cancel.signal);
      const result = await firstAnswer(original, copy);
      const isSilent = first.responses === responses;
      if (isSilent && isAnswer(result)) {
        first.failed(incidents, 0);
        this.#tokens++;
      }
      return result;
    } finally {
      cancel.abort();
    }
  }

  /** The server that the copy is sent to; undefined once the original has ended. */
  async #secondServer(first: Endpoint, original: Promise<unknown>): Promise<Endpoint | undefined> {
    const ended = new AbortController();
    const end = (): void => ended.abort();
    original.then(end, end);
    for (;;) {
      await pause(this.#clock, this.#delayMs, ended.signal);
      if (ended.signal.aborted) {
        this.#tokens = Math.min(maxTokens, this.#tokens + tokensPerRead);
        return undefined;
      }
      // Ejected: another read has found it silent, or it has failed.
      const isSuspected = first.ejectedForMs > 0;
      const second = isSuspected || this.#tokens >= 1 ? this.#endpoints.other(first) : undefined;
      if (second === undefined) continue;
      this.#tokens = Math.max(0, this.#tokens - 1);
      return second;
    }
  }
}

/** The answer that comes first; if both attempts fail, the failure of the first one. */
async function firstAnswer<T>(
  original: Promise<T | CallFailure>,
  copy: Promise<T | CallFailure>,
): Promise<T | CallFailure> {
  const first = await Promise.race([original, copy]);
  if (isAnswer(first)) return first;
  const [one, other] = await Promise.all([original, copy]);
  return isAnswer(other) ? other : one;
}

/** Whether another server would respond in the same way. */
function isAnswer(result: unknown): boolean {
  return !(result instanceof CallFailure) || !result.readAgain;
}
