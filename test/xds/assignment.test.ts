import { describe, expect, it } from "vitest";
import {
  type EncodedInstance,
  encodeAssignment,
  encodeInstance,
} from "../../src/xds/assignment.ts";
import { readInstance } from "../../src/xds/instance.ts";
import { decoded } from "./discovery-client.ts";

function instance(value: object, modRevision = 1): EncodedInstance {
  return encodeInstance(readInstance(Buffer.from(JSON.stringify(value))), modRevision);
}

function assignment(...instances: readonly EncodedInstance[]): unknown {
  const bytes = encodeAssignment("web", instances);
  return decoded("envoy.config.endpoint.v3.ClusterLoadAssignment", bytes);
}

function at(address: string, port: number): object {
  return { endpoint: { address: { socket_address: { address, port_value: port } } } };
}

describe("An assignment", () => {
  it("has locality, weight, health and metadata of its instances", () => {
    const value = {
      ...{ address: "10.0.0.1", port: 80, weight: 3, health: "DRAINING" },
      locality: { region: "eu", zone: "eu-1", sub_zone: "a" },
      metadata: { canary: true, version: "1.2", tags: ["x"] },
    };
    expect(assignment(instance(value))).toMatchObject({
      cluster_name: "web",
      endpoints: [
        {
          locality: { region: "eu", zone: "eu-1", sub_zone: "a" },
          load_balancing_weight: { value: 3 },
          lb_endpoints: [
            {
              ...at("10.0.0.1", 80),
              health_status: "DRAINING",
              load_balancing_weight: { value: 3 },
              metadata: {
                filter_metadata: {
                  "envoy.lb": {
                    fields: {
                      canary: { boolValue: true },
                      version: { stringValue: "1.2" },
                      tags: { listValue: { values: [{ stringValue: "x" }] } },
                    },
                  },
                },
              },
            },
          ],
        },
      ],
    });
  });

  it("groups instances by locality, with the sum of their weights", () => {
    const [a, b] = [{ zone: "a" }, { zone: "b" }];
    const built = assignment(
      instance({ address: "10.0.0.1", port: 1, locality: a }),
      instance({ address: "10.0.0.2", port: 1, locality: b, weight: 5 }),
      instance({ address: "10.0.0.3", port: 1, locality: a, weight: 4 }),
    );
    expect(built).toMatchObject({
      endpoints: [
        { locality: a, load_balancing_weight: { value: 5 }, lb_endpoints: [{}, {}] },
        { locality: b, load_balancing_weight: { value: 5 }, lb_endpoints: [{}] },
      ],
    });
  });

  it("numbers priorities without gaps", () => {
    const built = assignment(
      instance({ address: "10.0.0.1", port: 1, priority: 7 }),
      instance({ address: "10.0.0.2", port: 1, priority: 2 }),
    ) as { endpoints: { priority?: number; lb_endpoints: object[] }[] };
    const byPriority = built.endpoints.map(({ priority = 0, lb_endpoints: [first] }) => [
      priority,
      first,
    ]);
    expect(Object.fromEntries(byPriority)).toMatchObject({
      0: at("10.0.0.2", 1),
      1: at("10.0.0.1", 1),
    });
  });

  it("has an address once: that of the newer instance", () => {
    const built = assignment(
      instance({ address: "10.0.0.1", port: 1, weight: 2 }, 9),
      instance({ address: "10.0.0.1", port: 1, weight: 8 }, 5),
    );
    expect(built).toMatchObject({
      endpoints: [{ lb_endpoints: [{ load_balancing_weight: { value: 2 } }] }],
    });
  });

  it("reads the addresses of etcd's format, also of IPv6", () => {
    const built = assignment(
      instance({ Op: 0, Addr: "10.0.0.1:80", Metadata: "any" }),
      instance({ Addr: "[2001:db8::1]:443", Metadata: { zone: "a" } }),
    );
    expect(built).toMatchObject({
      endpoints: [{ lb_endpoints: [at("10.0.0.1", 80), at("2001:db8::1", 443)] }],
    });
  });

  it("may have any number of instances, in one locality or in as many", () => {
    const one = instance({ address: "10.0.0.1", port: 1 });
    const count = 130_000;
    const inOne = Array.from({ length: count }, (_, i) => ({ ...one, address: `${i}` }));
    const inMany = inOne.map((each) => ({ ...each, localityName: each.address }));
    for (const instances of [inOne, inMany]) {
      const size = encodeAssignment("web", instances).byteLength;
      expect(size).toBeGreaterThan(count * one.endpoint.byteLength);
    }
  });

  it("of a service without instances has only its name", () => {
    expect(assignment()).toEqual({ cluster_name: "web" });
  });
});
