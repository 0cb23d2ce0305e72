import { describe, expect, test } from "vitest";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import { Attributes, noAttributes } from "../../src/selector/attributes.ts";
import { heapOfEach } from "../heap.ts";

const codec = new JsonCodec({ fields: ["spec.nodeName", "status.phase"] });

function attributesOf(value: object): Attributes {
  return codec.attributesOf(Buffer.from(JSON.stringify(value))) ?? noAttributes;
}

function labels(count: number, name: (j: number) => string, value: (j: number) => string): object {
  const entries = Array.from({ length: count }, (_, j) => [name(j), value(j)]);
  return { metadata: { labels: Object.fromEntries(entries) } };
}

/** Objects, different ones for each `i`. */
const objects: readonly (readonly [what: string, object: (i: number) => object])[] = [
  [
    "like a pod",
    (i) => ({
      metadata: {
        labels: {
          app: "web",
          "app.kubernetes.io/name": `service-${i}`,
          "pod-template-hash": `${i}abcdef`,
        },
      },
      spec: { nodeName: `node-${i}` },
      status: { phase: "Running" },
    }),
  ],
  ["with one field", (i) => ({ spec: { nodeName: `node-${i}` } })],
  [
    "with one label",
    (i) =>
      labels(
        1,
        () => "a",
        () => `${i}`,
      ),
  ],
  [
    "with many labels that all have",
    (i) =>
      labels(
        100,
        (j) => `l${j}`,
        (j) => `${i}-${j}`,
      ),
  ],
  [
    "with many labels of its own",
    (i) =>
      labels(
        100,
        (j) => `l${i}x${j}`,
        () => "",
      ),
  ],
  [
    "with a thousand short labels",
    (i) =>
      labels(
        1_000,
        (j) => `${i}x${j}`,
        () => "",
      ),
  ],
  [
    "with a long label",
    (i) =>
      labels(
        1,
        () => "a",
        () => `${i}`.padEnd(5_000, "x"),
      ),
  ],
  [
    "with a long label in Chinese",
    (i) =>
      labels(
        1,
        () => "a",
        () => `${i}`.padEnd(5_000, "中"),
      ),
  ],
  [
    "with a label that one character makes twice as large",
    (i) =>
      labels(
        1,
        () => "a",
        () => `${i}中`.padEnd(5_000, "x"),
      ),
  ],
];

describe("The estimated memory of attributes is about right, of an object", () => {
  test.each(objects)("%s", (_, object) => {
    // Small ones have to be many to be distinguished from other allocations.
    const { length } = JSON.stringify(object(1));
    const count = length < 300 ? 3_000 : length < 10_000 ? 100 : 20;
    const each = heapOfEach(count, (i) => attributesOf(object(1_000 + i)));
    const estimated = attributesOf(object(1_050)).bytes;
    expect(estimated / each).toBeGreaterThan(0.66);
    expect(estimated / each).toBeLessThan(1.5);
  });

  test("without any: almost nothing", () => {
    expect(noAttributes.bytes).toBeLessThan(50);
    expect(new Attributes(new Map(), new Map([["a", "b"]])).labels).toBe(noAttributes.labels);
  });
});
