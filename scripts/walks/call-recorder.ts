import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";

/** How often an action is repeated, and a window without one. */
const repetitions = 8;
const idleWindows = 9;
/** How long a window stays open after its action: what the action has left to do belongs to it. In milliseconds. */
const settlingMs = 150;

/** A function of a script, and where it begins. */
export interface CalledFunction {
  readonly url: string;
  readonly scriptId: string;
  readonly offset: number;
  readonly count: number;
}

/** A result of takePreciseCoverage of the inspector's domain Profiler. */
interface Coverage {
  readonly result: readonly {
    readonly url: string;
    readonly scriptId: string;
    readonly functions: readonly {
      readonly ranges: readonly { readonly startOffset: number; readonly count: number }[];
    }[];
  }[];
}

/** A response of the inspector, or its notification that the process has stopped at breakpoints. */
interface Message {
  readonly id?: number;
  readonly result?: unknown;
  readonly error?: object;
  readonly params?: { readonly hitBreakpoints?: readonly string[] };
}

/** Position in a script: both count from 0. */
interface Location {
  readonly scriptId: string;
  readonly lineNumber: number;
  readonly columnNumber?: number;
}

/** Which files a process passes during an action, by its inspector: `node --inspect`. Its worker threads are not seen. */
export class CallRecorder implements Disposable {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #isOurs: (url: string) => boolean;
  /** The scripts of breakpoints, by their id, and those that were passed. */
  readonly #stops = new Map<string, string>();
  readonly #passed = new Set<string>();
  #lastId = 0;

  private constructor(socket: WebSocket, isOurs: (url: string) => boolean) {
    this.#socket = socket;
    this.#isOurs = isOurs;
    socket.addEventListener("message", ({ data }) => this.#receive(JSON.parse(String(data))));
    socket.addEventListener("close", () => {
      const closed = new Error("The process or its inspector has ended.");
      for (const { reject } of this.#waiting.values()) reject(closed);
    });
  }

  /** `url`: what Node.js prints after "Debugger listening on". `isOurs` returns whether a script counts, by its URL. */
  static async attach(url: string, isOurs: (url: string) => boolean): Promise<CallRecorder> {
    const socket = new WebSocket(url);
    await once(socket, "open");
    const recorder = new CallRecorder(socket, isOurs);
    await recorder.#send("Profiler.enable");
    await recorder.#send("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
    return recorder;
  }

  /**
   * The functions on the path of `action`, by URL and offset: those that each repetition calls more often than the median
   * of the windows without the action, in which only timers run. `reset` follows each repetition and is not counted. The process must
   * have done both before, so that it is warm.
   */
  async calledBy(
    action: () => Promise<void>,
    reset: () => Promise<void>,
  ): Promise<ReadonlyMap<string, CalledFunction>> {
    const idle: ReadonlyMap<string, CalledFunction>[] = [];
    for (let i = 0; i < idleWindows; i++) idle.push(await this.#window(async () => {}));
    const usual = (key: string): number => {
      const counts = idle.map((each) => each.get(key)?.count ?? 0).sort((a, b) => a - b);
      return counts[Math.floor(idleWindows / 2)] ?? 0;
    };
    let called = new Map<string, CalledFunction>();
    for (let i = 0; i < repetitions; i++) {
      const counts = await this.#window(action);
      await reset();
      const more = [...counts].filter(([key, { count }]) => count > usual(key));
      called = new Map(more.filter(([key]) => i === 0 || called.has(key)));
    }
    return called;
  }

  /** What is called from the beginning of an action until it has settled. */
  async #window(action: () => Promise<void>): Promise<Map<string, CalledFunction>> {
    await delay(settlingMs);
    await this.#send("Profiler.takePreciseCoverage");
    await action();
    await delay(settlingMs);
    const { result } = (await this.#send("Profiler.takePreciseCoverage")) as Coverage;
    const called = new Map<string, CalledFunction>();
    for (const { url, scriptId, functions } of result.filter((each) => this.#isOurs(each.url))) {
      for (const { ranges } of functions) {
        const [{ startOffset: offset, count } = { startOffset: 0, count: 0 }] = ranges;
        if (count > 0) called.set(`${url}:${offset}`, { url, scriptId, offset, count });
      }
    }
    return called;
  }

  /**
   * The URLs of the scripts that have these functions, in the order of the first call: each script stops the process once,
   * at a breakpoint. A script whose functions are not called this time is last.
   */
  async inOrder(
    functions: Iterable<CalledFunction>,
    action: () => Promise<void>,
    reset: () => Promise<void>,
  ): Promise<readonly string[]> {
    const all = [...functions];
    this.#stops.clear();
    await this.#send("Debugger.enable");
    for (const { url, scriptId, offset } of all) {
      const start = await this.#locationOf(scriptId, offset);
      const { locations } = (await this.#send("Debugger.getPossibleBreakpoints", {
        ...{ start, restrictToFunction: true },
      })) as { readonly locations: readonly Location[] };
      for (const location of locations.slice(0, 1)) {
        const { breakpointId } = (await this.#send("Debugger.setBreakpoint", { location })) as {
          readonly breakpointId: string;
        };
        this.#stops.set(breakpointId, url);
      }
    }
    this.#passed.clear();
    await action();
    await delay(settlingMs);
    await this.#send("Debugger.disable");
    await reset();
    return [...new Set([...this.#passed, ...all.map(({ url }) => url)])];
  }

  #receive({ id, result, error, params }: Message): void {
    const waiting = this.#waiting.get(id ?? 0);
    this.#waiting.delete(id ?? 0);
    if (error === undefined) waiting?.resolve(result);
    else waiting?.reject(new Error(`The inspector refused: ${JSON.stringify(error)}`));
    const urls = params?.hitBreakpoints?.map((hit) => this.#stops.get(hit));
    // Refused if breakpoints are disabled meanwhile, which lets the process run on too.
    if (urls !== undefined) this.#pass(urls).catch(() => {});
  }

  /** Notes scripts that are passed, and lets the process run on without a further stop in them. */
  async #pass(urls: readonly (string | undefined)[]): Promise<void> {
    const sent: Promise<unknown>[] = [];
    for (const [breakpointId, url] of this.#stops) {
      if (!urls.includes(url)) continue;
      this.#passed.add(url);
      this.#stops.delete(breakpointId);
      sent.push(this.#send("Debugger.removeBreakpoint", { breakpointId }));
    }
    await Promise.all([...sent, this.#send("Debugger.resume")]);
  }

  async #locationOf(scriptId: string, offset: number): Promise<Location> {
    const { scriptSource } = (await this.#send("Debugger.getScriptSource", { scriptId })) as {
      readonly scriptSource: string;
    };
    const lines = scriptSource.slice(0, offset).split("\n");
    return {
      ...{ scriptId, lineNumber: lines.length - 1, columnNumber: lines.at(-1)?.length ?? 0 },
    };
  }

  async #send(method: string, params: object = {}): Promise<unknown> {
    const id = ++this.#lastId;
    const waiting = Promise.withResolvers<unknown>();
    this.#waiting.set(id, waiting);
    this.#socket.send(JSON.stringify({ id, method, params }));
    return waiting.promise;
  }

  [Symbol.dispose](): void {
    this.#socket.close();
  }
}
