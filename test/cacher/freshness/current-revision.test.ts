import { describe, expect, it } from "vitest";
import { CurrentRevision } from "../../../src/cacher/freshness/freshness.ts";
import { FakeClock } from "../../fake-clock.ts";

/** A store that answers on the command of the test, with its requests in the order of arrival. */
class Store {
  readonly clock = new FakeClock();
  readonly questions: PromiseWithResolvers<number>[] = [];
  readonly shared = new CurrentRevision(() => {
    const question = Promise.withResolvers<number>();
    this.questions.push(question);
    return question.promise;
  }, this.clock);

  get requests(): number {
    return this.questions.length;
  }

  /** Answers the newest request, and waits until all callers have received the response. */
  async respond(with_: number | Error): Promise<void> {
    const question = this.questions.at(-1);
    if (with_ instanceof Error) question?.reject(with_);
    else question?.resolve(with_);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** The outcome of each call, by its name, as soon as it is known. */
function outcomes() {
  const received: Record<string, number | string> = {};
  return {
    received,
    call(store: Store, name: string): void {
      store.shared.get().then(
        (revision) => {
          received[name] = revision;
        },
        (error: unknown) => {
          received[name] = String(error);
        },
      );
    },
  };
}

describe("The current revision", () => {
  it("is requested at once when no request is in flight", async () => {
    const store = new Store();
    const revision = store.shared.get();
    expect(store.requests).toBe(1);
    await store.respond(7);
    expect(await revision).toBe(7);
  });

  it("is requested again for each call that arrives when no request is in flight", async () => {
    const store = new Store();
    const { received, call } = outcomes();
    call(store, "first");
    await store.respond(7);
    call(store, "second");
    expect(store.requests).toBe(2);
    await store.respond(9);
    expect(received).toEqual({ first: 7, second: 9 });
  });

  it("is never the response to a request sent before the call, and is the same for all waiting calls", async () => {
    const store = new Store();
    const { received, call } = outcomes();
    call(store, "asks");
    for (const name of ["a", "b", "c"]) call(store, name);
    expect(store.requests).toBe(1);
    await store.respond(7);
    expect(received).toEqual({ asks: 7 });
    expect(store.requests).toBe(2);
    call(store, "later");
    await store.respond(8);
    expect(received).toEqual({ asks: 7, a: 8, b: 8, c: 8 });
    expect(store.requests).toBe(3);
    await store.respond(9);
    expect(received).toMatchObject({ later: 9 });
    expect(store.requests).toBe(3);
  });

  it("is requested again for a caller that calls after it received a response", async () => {
    const store = new Store();
    const { received, call } = outcomes();
    const first = store.shared.get();
    void first.then(() => call(store, "after the response"));
    await store.respond(7);
    expect(store.requests).toBe(2);
    expect(received).toEqual({});
    await store.respond(8);
    expect(received).toEqual({ "after the response": 8 });
  });

  it("fails only for the calls that share the request, and is still requested for the next ones", async () => {
    const store = new Store();
    const { received, call } = outcomes();
    call(store, "asks");
    call(store, "waits");
    call(store, "waits too");
    await store.respond(new Error("gone"));
    expect(received).toEqual({ asks: "Error: gone" });
    expect(store.requests).toBe(2);
    await store.respond(new Error("still gone"));
    expect(received).toEqual({
      asks: "Error: gone",
      waits: "Error: still gone",
      "waits too": "Error: still gone",
    });
    call(store, "again");
    await store.respond(9);
    expect(received).toMatchObject({ again: 9 });
  });

  it("keeps the newest revision received", async () => {
    const store = new Store();
    const { call } = outcomes();
    expect(store.shared.newest).toBe(0);
    for (const [i, response] of [7, 5, new Error("gone"), 9].entries()) {
      call(store, String(i));
      await store.respond(response);
    }
    expect(store.shared.newest).toBe(9);
    call(store, "older");
    await store.respond(8);
    expect(store.shared.newest).toBe(9);
  });

  it("counts a response as the newest by the time that its callers receive it", async () => {
    const store = new Store();
    const seen = store.shared.get().then(() => store.shared.newest);
    await store.respond(7);
    expect(await seen).toBe(7);
  });

  it("is requested again after a second, although the last request hangs", async () => {
    const store = new Store();
    const { received, call } = outcomes();
    call(store, "first");
    call(store, "second");
    expect(store.requests).toBe(1);
    store.clock.advance(999);
    expect(store.requests).toBe(1);
    store.clock.advance(1);
    expect(store.requests).toBe(2);
    await store.respond(7);
    expect(received).toEqual({ second: 7 });
    expect(store.clock.pendingTimers).toBe(0);
  });
});
