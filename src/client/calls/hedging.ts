import { type Clock, maxTimerMs, pause } from "../../base/clock.ts";
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
  /** Maximum number of copies. */
  readonly maxCopies: number;
  /** Called with the server of a copy, before that is sent. */
  readonly onCopy: (endpoint: Endpoint) => void;
}

/**
 * Sends a copy of a read to another server if the first one takes long, and uses the response that comes first, as
 * gRPC's hedging policy does (proposal A6). So a server that hangs does not take the whole timeout of a read. If the copy
 * fails, another one follows. A server that sent nothing at all meanwhile is ejected when another one responds. Writes
 * are never hedged.
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
    return this.#endpoints.count > 1 && this.#delayMs <= maxTimerMs;
  }

  /** Rejects as an attempt does. If all attempts fail, the result is the failure of the first one. */
  async read<T>({ first, attempt, maxCopies, onCopy }: HedgedRead<T>): Promise<T | CallFailure> {
    const cancel = new AbortController();
    const { incidents, responses } = first;
    const isSilent = (): boolean => first.responses === responses;
    // Another read has found it silent, or it has failed.
    const isSuspected = (): boolean =>
      first.ejectedForMs > 0 || (first.incidents > incidents && isSilent());
    const original = attempt(first, cancel.signal);
    const asked = new Set<Endpoint>();
    try {
      for (let copies = 0; copies < maxCopies; copies++) {
        const server = await this.#serverOfCopy(first, asked, isSuspected, original);
        if (server === undefined) break;
        asked.add(server);
        onCopy(server);
        const answer = await firstAnswer(original, attempt(server, cancel.signal));
        if (answer === undefined) continue;
        if (isSilent()) {
          first.failed(incidents, 0);
          this.#addTokens(1);
        }
        return answer;
      }
      if (asked.size === 0) this.#addTokens(tokensPerRead);
      return await original;
    } finally {
      cancel.abort();
    }
  }

  /** The server that the next copy is sent to, if possible not one in `asked`; undefined once the original has ended. */
  async #serverOfCopy(
    first: Endpoint,
    asked: ReadonlySet<Endpoint>,
    isSuspected: () => boolean,
    original: Promise<unknown>,
  ): Promise<Endpoint | undefined> {
    const ended = new AbortController();
    const end = (): void => ended.abort();
    original.then(end, end);
    for (;;) {
      await pause(this.#clock, this.#delayMs, ended.signal);
      if (ended.signal.aborted) return undefined;
      if (!isSuspected() && this.#tokens < 1) continue;
      const server = this.#endpoints.other(first, asked);
      if (server === undefined) continue;
      this.#tokens = Math.max(0, this.#tokens - 1);
      return server;
    }
  }

  #addTokens(tokens: number): void {
    this.#tokens = Math.min(maxTokens, this.#tokens + tokens);
  }
}

/** The answer that comes first; undefined if the copy fails, or both do. */
async function firstAnswer<T>(
  original: Promise<T | CallFailure>,
  copy: Promise<T | CallFailure>,
): Promise<T | CallFailure | undefined> {
  const answerOfCopy = copy.then((result) => (isAnswer(result) ? result : undefined));
  const first = await Promise.race([original, answerOfCopy]);
  return first === undefined || isAnswer(first) ? first : answerOfCopy;
}

/** Whether another server would respond in the same way. */
function isAnswer(result: unknown): boolean {
  return !(result instanceof CallFailure) || !result.readAgain;
}
