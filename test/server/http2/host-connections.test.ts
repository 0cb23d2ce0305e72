import { expect, onTestFinished, test, vi } from "vitest";
import { Heap } from "../../../src/base/heap.ts";
import { HostConnections } from "../../../src/server/http2/connections.ts";
import fc from "../../property.ts";

interface Connection {
  readonly host: string;
}

const hosts = ["a", "b", "c", "d"];
const steps = fc.array(
  fc.record({
    ...{ host: fc.constantFrom(...hosts), index: fc.nat() },
    what: fc.constantFrom("add", "add", "add", "delete", "idle", "busy", "replace"),
  }),
  { maxLength: 80 },
);

/** What should make room, by the rule in words. `idle` has the longest idle first. */
function expected(host: string, open: readonly Connection[], idle: readonly Connection[]) {
  const of = (name: string, all: readonly Connection[]) => all.filter((one) => one.host === name);
  const own = of(host, open).length;
  const most = Math.max(...hosts.map((name) => of(name, open).length));
  if (most <= own + 1) return own === 0 ? [idle[0]] : [of(host, idle)[0]];
  const largest = hosts.filter((name) => of(name, open).length === most);
  return largest.map((name) => of(name, idle)[0] ?? of(name, open)[0]);
}

test("A connection of the host with the most makes room, an idle one first, and of no host with one more at most", () => {
  fc.assert(
    fc.property(steps, (all) => {
      const connections = new HostConnections<Connection>();
      let open: Connection[] = [];
      let idle: Connection[] = [];
      for (const { host, what, index } of all) {
        const chosen = open[index % Math.max(1, open.length)];
        if (what === "add") {
          const connection = { host };
          open.push(connection);
          idle.push(connection);
          connections.add(connection);
        } else if (what !== "replace" && chosen !== undefined) {
          idle = idle.filter((one) => one !== chosen);
          if (what === "idle") idle.push(chosen);
          if (what === "delete") {
            open.splice(open.indexOf(chosen), 1);
            connections.delete(chosen);
            connections.delete(chosen);
          }
          connections.setIdle(chosen, what === "idle");
        }
        if (what === "replace") {
          const replaced = connections.replace(host);
          expect(expected(host, open, idle)).toContain(replaced);
          open = open.filter((one) => one !== replaced);
          idle = idle.filter((one) => one !== replaced);
        }
      }
    }),
  );
});

test("A connection is refused without a look at all others", () => {
  const connections = new HostConnections<Connection>();
  for (let i = 0; i < 1_000; i++) {
    const connection = { host: "a" };
    connections.add(connection);
    connections.setIdle(connection, false);
  }
  const { find } = Heap.prototype;
  let asked = 0;
  const spy = vi.spyOn(Heap.prototype, "find").mockImplementation(function (this: Heap<never>, of) {
    return find.call(this, (item) => {
      asked++;
      return of(item as never);
    });
  });
  onTestFinished(() => spy.mockRestore());
  expect(connections.replace("a")).toBeUndefined();
  expect(asked).toBeLessThan(10);
});
