import { type Span, SpanStatusCode, type Tracer, trace } from "@opentelemetry/api";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { ItemExponentialFailureRateLimiter } from "../../../src/client/work-queue/rate-limiter.ts";
import { runWorkers } from "../../../src/client/work-queue/run-workers.ts";
import { WorkQueue } from "../../../src/client/work-queue/work-queue.ts";
import { FakeClock } from "../../fake-clock.ts";

/** Work that lasts until the test ends it. */
class Bench {
  readonly began: string[] = [];
  readonly signals: AbortSignal[] = [];
  readonly #open = new Map<string, { resolve(): void; reject(error: unknown): void }>();

  readonly work = (key: string, signal: AbortSignal): Promise<void> => {
    this.began.push(key);
    this.signals.push(signal);
    return new Promise((resolve, reject) => this.#open.set(key, { resolve, reject }));
  };

  end(key: string): void {
    this.#open.get(key)?.resolve();
  }

  fail(key: string, error: unknown): void {
    this.#open.get(key)?.reject(error);
  }
}

function begin(options: { readonly workers?: number; readonly keys?: string } = {}) {
  const clock = new FakeClock();
  const queue = new WorkQueue<string>({ clock });
  const bench = new Bench();
  const stop = new AbortController();
  const errors: unknown[] = [];
  for (const key of options.keys ?? "") queue.add(key);
  const running = runWorkers(options.workers ?? 2, queue, bench.work, {
    signal: stop.signal,
    onError: (error, key) => errors.push([key, error]),
  });
  return { clock, queue, bench, stop, errors, running };
}

const settled = (promise: Promise<unknown>) => {
  const outcome = { done: false };
  promise.finally(() => {
    outcome.done = true;
  });
  return outcome;
};

describe("Workers", () => {
  it("are as many as requested, and each takes the next key when it is done", async () => {
    const { clock, queue, bench, running } = begin({ workers: 2, keys: "abcd" });
    await clock.settle();
    expect(bench.began).toEqual(["a", "b"]);
    bench.end("b");
    await clock.settle();
    expect(bench.began).toEqual(["a", "b", "c"]);
    expect([queue.length, queue.processing]).toEqual([1, 2]);
    queue.shutDown();
    for (const key of "ac") bench.end(key);
    await running;
  });

  it.each([0, 1.5, Number.NaN])("can't be %d", async (count) => {
    const running = runWorkers(count, new WorkQueue<string>(), () => {});
    await expect(running).rejects.toMatchObject({ reason: "INVALID_REQUEST", field: "count" });
  });

  it("may work synchronously", async () => {
    const queue = new WorkQueue<string>();
    const worked: string[] = [];
    for (const key of "abc") queue.add(key);
    const running = runWorkers(1, queue, (key) => worked.push(key));
    await queue.shutDownWithDrain();
    await running;
    expect(worked).toEqual(["a", "b", "c"]);
  });
});

describe("A key that fails", () => {
  it("is reported, and retried after the delay of the limiter, later each time", async () => {
    const { clock, queue, bench, errors, running } = begin({ keys: "a" });
    const error = new Error("no");
    for (const [failures, delayMs] of [5, 10, 20].entries()) {
      await clock.settle();
      bench.fail("a", error);
      await clock.settle();
      expect(queue.numRequeues("a")).toBe(failures + 1);
      await clock.elapse(delayMs - 1);
      expect(bench.began.length).toBe(failures + 1);
      await clock.elapse(1);
      expect(bench.began.length).toBe(failures + 2);
    }
    expect(errors).toEqual([1, 2, 3].map(() => ["a", error]));
    queue.shutDown();
    bench.end("a");
    await running;
  });

  it("is forgotten by the limiter when it succeeds", async () => {
    const { clock, queue, bench, running } = begin({ keys: "a" });
    await clock.settle();
    bench.fail("a", "no");
    await clock.elapse(5);
    expect(queue.numRequeues("a")).toBe(1);
    bench.end("a");
    await clock.settle();
    expect(queue.numRequeues("a")).toBe(0);
    queue.shutDown();
    await running;
  });

  it("uses the limiter of the workers, if they have one", async () => {
    const clock = new FakeClock();
    const queue = new WorkQueue<string>({ clock });
    const rateLimiter = new ItemExponentialFailureRateLimiter(70, 1_000);
    const began: number[] = [];
    queue.add("a");
    const running = runWorkers(
      1,
      queue,
      () => {
        began.push(clock.now());
        if (began.length < 3) throw new Error("no");
      },
      { rateLimiter, onError: () => {} },
    );
    await clock.elapse(1_000);
    expect(began).toEqual([0, 70, 210]);
    expect([rateLimiter.numRequeues("a"), queue.numRequeues("a")]).toEqual([0, 0]);
    queue.shutDown();
    await running;
  });

  it("is a process warning without a listener", async () => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    onTestFinished(() => warn.mockRestore());
    const queue = new WorkQueue<string>({ clock: new FakeClock() });
    queue.add("a");
    const fail = () => Promise.reject(new Error("the disk is full"));
    const running = runWorkers(1, queue, fail);
    await queue.shutDownWithDrain();
    await running;
    expect(warn.mock.calls).toEqual([[expect.stringMatching(/failed at a.*the disk is full/)]]);
  });
});

describe("Workers that are stopped", () => {
  it("take no more keys, abort the signal of their work, and wait for it", async () => {
    const { clock, queue, bench, stop, running } = begin({ workers: 1, keys: "ab" });
    const ended = settled(running);
    await clock.settle();
    stop.abort(new Error("bye"));
    await clock.settle();
    expect(bench.signals[0]?.reason).toEqual(new Error("bye"));
    expect(ended.done).toBe(false);
    bench.end("a");
    await running;
    expect([bench.began, queue.length, queue.processing]).toEqual([["a"], 1, 0]);
  });

  it("leave a key in the queue whose work ended because of that, and report nothing", async () => {
    const { clock, queue, bench, stop, errors, running } = begin({ keys: "ab" });
    await clock.settle();
    stop.abort(new Error("bye"));
    bench.fail("a", stop.signal.reason);
    bench.fail("b", new DOMException("The operation was aborted.", "AbortError"));
    await running;
    expect([queue.length, queue.numRequeues("a"), errors]).toEqual([2, 0, []]);
  });

  it("report another failure, and leave its key in the queue", async () => {
    const { clock, queue, bench, stop, errors, running } = begin({ keys: "a" });
    await clock.settle();
    stop.abort();
    bench.fail("a", "no");
    await running;
    expect([queue.length, errors]).toEqual([1, [["a", "no"]]]);
  });

  it("put back a key that they have just taken", async () => {
    const { clock, queue, bench, stop, running } = begin({ workers: 1 });
    await clock.settle();
    queue.add("a");
    stop.abort();
    await running;
    expect([bench.began, queue.length, queue.processing]).toEqual([[], 1, 0]);
  });

  it("before they have begun take nothing", async () => {
    const queue = new WorkQueue<string>();
    queue.add("a");
    const worked: string[] = [];
    await runWorkers(2, queue, (key) => worked.push(key), { signal: AbortSignal.abort() });
    expect([worked, queue.length]).toEqual([[], 1]);
  });

  it("by a shutdown of the queue finish their work, without an aborted signal", async () => {
    const { clock, queue, bench, running } = begin({ keys: "abc" });
    await clock.settle();
    queue.shutDown();
    expect(bench.signals.map(({ aborted }) => aborted)).toEqual([false, false]);
    for (const key of "ab") bench.end(key);
    await running;
    expect(bench.began).toEqual(["a", "b"]);
  });

  it("by a drain process all queued keys", async () => {
    const { clock, queue, bench, running } = begin({ workers: 1, keys: "abc" });
    const drained = queue.shutDownWithDrain();
    for (const key of "abc") {
      await clock.settle();
      bench.end(key);
    }
    await Promise.all([drained, running]);
    expect(bench.began).toEqual(["a", "b", "c"]);
  });

  it("by an exception of onError all stop, and reject with it", async () => {
    const clock = new FakeClock();
    const queue = new WorkQueue<string>({ clock });
    const bench = new Bench();
    for (const key of "ab") queue.add(key);
    const fatal = new Error("that is enough");
    const running = runWorkers(2, queue, bench.work, {
      onError: () => {
        throw fatal;
      },
    });
    const ended = settled(running.catch(() => {}));
    await clock.settle();
    bench.fail("a", "no");
    await clock.settle();
    expect([bench.signals[1]?.reason, ended.done]).toEqual([fatal, false]);
    bench.end("b");
    await expect(running).rejects.toBe(fatal);
    expect([queue.processing, queue.delayed]).toEqual([0, 1]);
    queue.shutDown();
  });
});

describe("Spans", () => {
  it("are one for each processed key, around the work, with its outcome", async () => {
    const spans: unknown[] = [];
    const tracer = {
      startActiveSpan: (name: string, options: object, run: (span: Span) => unknown) => {
        const said: unknown[] = [name, options];
        spans.push(said);
        return run({
          recordException: (error: Error) => said.push(error.message),
          setStatus: ({ code }: { code: SpanStatusCode }) => said.push(SpanStatusCode[code]),
          end: () => said.push("end"),
        } as unknown as Span);
      },
    } as unknown as Tracer;
    trace.setGlobalTracerProvider({ getTracer: () => tracer });
    onTestFinished(() => trace.disable());
    const queue = new WorkQueue<string>({ name: "pods", clock: new FakeClock() });
    for (const key of "ab") queue.add(key);
    const work = (key: string) => (key === "b" ? Promise.reject("no") : undefined);
    const running = runWorkers(1, queue, work, { onError: () => {} });
    await queue.shutDownWithDrain();
    await running;
    const about = (key: string) => ({
      attributes: { queue: "pods", key },
    });
    expect(spans).toEqual([
      ["work on a key", about("a"), "end"],
      ["work on a key", about("b"), "no", "ERROR", "end"],
    ]);
  });
});
