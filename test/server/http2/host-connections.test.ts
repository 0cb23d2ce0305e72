import { expect, test } from "vitest";
import { HostConnections } from "../../../src/server/http2/host-connections.ts";
import fc from "../../property.ts";

const hosts = ["a", "b", "c", "d"];
const steps = fc.array(
  fc.record({ host: fc.constantFrom(...hosts), isAdded: fc.boolean(), index: fc.nat() }),
  { maxLength: 60 },
);

test("A connection of the host with the most makes room, the oldest, for hosts that have two fewer", () => {
  fc.assert(
    fc.property(steps, (all) => {
      const connections = new HostConnections<{ readonly host: string }>();
      const open: { readonly host: string }[] = [];
      const sizeOf = (host: string): number => open.filter((one) => one.host === host).length;
      for (const { host, isAdded, index } of all) {
        if (isAdded) {
          const connection = { host };
          open.push(connection);
          connections.add(connection);
        } else {
          const [closed] = open.splice(index % Math.max(1, open.length), 1);
          if (closed !== undefined) {
            connections.delete(closed);
            connections.delete(closed);
          }
        }
        const largest = Math.max(...hosts.map(sizeOf));
        for (const newcomer of hosts) {
          const replaced = connections.oldestBeside(newcomer);
          if (sizeOf(newcomer) + 1 >= largest) {
            expect(replaced).toBe(undefined);
          } else {
            expect(sizeOf(replaced?.host ?? "")).toBe(largest);
            expect(replaced).toBe(open.find((one) => one.host === replaced?.host));
          }
        }
      }
    }),
  );
});
