import { describe, expect, test } from "vitest";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import type { WatchResponse__Output } from "../../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import type { Watching } from "../test-client.ts";
import { clientAs } from "./callers.ts";
import { type Guarded, serveGuarded } from "./guarded.ts";

const team = (name: string, prefix: string): string => `
  - name: ${name}
    rules: [{ resources: [pods], prefixes: ["${prefix}"], verbs: [list, watch] }]`;

function policyWith(subjects: Readonly<Record<string, string>>): string {
  const bindings = Object.entries(subjects).map(
    ([role, subject]) => `  - { role: ${role}, subjects: [${subject}] }\n`,
  );
  return `roles:${team("a", "a/")}${team("b", "b/")}${team("all", "*")}\nbindings:\n${bindings.join("")}`;
}

type Watch = Watching<WatchResponse__Output>;

/** Opens watches, and resolves when each has had its first response. */
async function opened(
  guarded: Guarded,
  caller: string,
  prefix: string,
  count: number,
): Promise<Watch[]> {
  const client = clientAs(guarded.server, caller);
  const watches = Array.from({ length: count }, () => client.watch({ resource: "pods", prefix }));
  for (const watch of watches) await watch.next();
  return watches;
}

describe("A changed policy", () => {
  test("ends exactly those of 1,000 streams that lose their right, with their resume points", async () => {
    const guarded = await serveGuarded(
      policyWith({ a: '"s/ann", "s/bob"', b: "cid", all: "root" }),
    );
    const { server, put, change, authorizer } = guarded;
    const ann = await opened(guarded, "s/ann", "a/", 300);
    const narrow = await opened(guarded, "s/ann", "a/x", 100);
    const bob = await opened(guarded, "s/bob", "a/", 200);
    const cid = await opened(guarded, "cid", "b/", 200);
    const root = await opened(guarded, "root", "", 200);
    await put("pods", "a/x1");
    await put("pods", "b/1");
    for (const watch of [...bob, ...root]) await watch.next();
    // The resume point that each had last, which depends on what was dispatched together.
    const resumePoints: (string | undefined)[] = [];
    for (const watch of [...ann, ...narrow]) resumePoints.push((await watch.next()).revision);
    expect(server.openStreams).toBe(1_000);

    change(policyWith({ a: '"s/bob"', b: "cid, s/ann", all: "root" }));
    const errors = await Promise.all([...ann, ...narrow].map(({ ended }) => ended));
    expect(new Set(errors.map(({ reason }) => reason))).toEqual(new Set(["PERMISSION_DENIED"]));
    const resumeOf = (error: WatchFanoutError): string | undefined =>
      error.metadata["resume_revision"];
    expect(errors.map(resumeOf)).toEqual(resumePoints);
    expect(errors[0]?.metadata).toMatchObject({ verb: "watch", resource: "pods", prefix: "a/" });
    expect(server.openStreams).toBe(600);
    expect(authorizer.revoked).toBe(400);

    // The others continue where they are.
    await put("pods", "a/x2");
    await put("pods", "b/2");
    const last = (watches: readonly Watch[], key: string): Promise<unknown> =>
      Promise.all(
        watches.map((watch) =>
          watch.until(({ events }) => events.some(({ object }) => object?.key === key)),
        ),
      );
    await last(bob, "a/x2");
    await last(cid, "b/2");
    await last(root, "b/2");
    expect(server.openStreams).toBe(600);
  });

  test("ends exactly those of 1,000 watches of a Subscribe stream that lose their right", async () => {
    const guarded = await serveGuarded(policyWith({ a: "ann", b: "ann" }));
    const stream = clientAs(guarded.server, "ann").subscribe();
    const ids = Array.from({ length: 1_000 }, (_, i) => i + 1);
    const prefixOf = (id: number): string => (id % 2 === 0 ? "a/" : "b/");
    for (const id of ids) stream.add(id, { resource: "pods", prefix: prefixOf(id) });
    const opened = await Promise.all(ids.map((id) => stream.watchOf(id)));
    const [point] = opened.map(({ revision }) => revision);
    guarded.change(policyWith({ b: "ann" }));
    const [lost, kept] = [0, 1].map((rest) => ids.filter((id) => id % 2 === rest));
    for (const id of lost ?? []) {
      expect(await stream.endOf(id)).toMatchObject({
        reason: "PERMISSION_DENIED",
        metadata: { prefix: "a/", resume_revision: point },
      });
    }
    expect(guarded.authorizer.revoked).toBe(500);
    expect(guarded.server.openStreams).toBe(1 + 500);
    await guarded.put("pods", "a/1");
    await guarded.put("pods", "b/1");
    for (const id of kept ?? []) {
      const { events } = await stream.watchOf(id);
      expect(events.map(({ object }) => object?.key)).toEqual(["b/1"]);
    }
    for (const id of lost ?? []) expect(stream.waitingOf(id)).toBe(0);
  });

  test("that allows what another rule allowed before ends no stream", async () => {
    const guarded = await serveGuarded(policyWith({ a: "ann" }));
    const [watch] = await opened(guarded, "ann", "a/", 1);
    guarded.change(policyWith({ all: "ann" }));
    guarded.change(policyWith({ a: "ann", b: "ann" }));
    await guarded.put("pods", "a/1");
    expect((await watch?.next())?.events).toHaveLength(1);
    expect(guarded.authorizer.revoked).toBe(0);
  });

  test("ends also a stream whose client accepts nothing, without a delay for others", async () => {
    const guarded = await serveGuarded(policyWith({ a: "ann" }));
    await opened(guarded, "ann", "a/", 2);
    guarded.change(policyWith({ a: "bob" }));
    const [bob] = await opened(guarded, "bob", "a/", 1);
    await guarded.put("pods", "a/1");
    expect((await bob?.next())?.events).toHaveLength(1);
    expect(guarded.server.openStreams).toBe(1);
  });
});
