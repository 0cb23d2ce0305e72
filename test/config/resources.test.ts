import { describe, expect, test } from "vitest";
import type { ResourceConfig } from "../../src/config/config.ts";
import { buildDescriptors } from "../codec/fixtures.ts";
import { type Given, load, problemsOf } from "./sources.ts";

const files = { "lease.binpb": buildDescriptors(), "lease.proto": 'syntax = "proto3";' };

/** The one resource `a`, with more `lines`, which begin on the file's line 4. */
function yamlOf(...lines: readonly string[]): Given {
  const given = lines.map((line) => `\n    ${line}`).join("");
  return { files, yaml: `resources:\n  - name: a\n    prefix: /a/${given}\n` };
}

function resource(...lines: readonly string[]): ResourceConfig | undefined {
  return load(yamlOf(...lines)).resources[0];
}

describe("A resource's codec reads attributes from values", () => {
  const value = Buffer.from('{"metadata":{"labels":{"l":"1"}},"tags":{"t":"2"},"x":{"y":"z"}}');

  test("is opaque by default, and reads none", () => {
    expect(resource()?.codec).toMatchObject({ name: "opaque", hasAttributes: false });
    expect(resource("codec: opaque")?.codec).toMatchObject({
      name: "opaque",
      hasAttributes: false,
    });
  });

  test("json reads labels at metadata.labels, and no fields by default", () => {
    const attributes = resource("codec: json")?.codec.attributesOf(value);
    expect([...(attributes?.labels ?? [])]).toEqual([["l", "1"]]);
    expect(attributes?.fields.size).toBe(0);
  });

  test("json reads labels and fields at the configured paths", () => {
    const codec = resource("codec: json", "labels: tags", "fields: [x.y]")?.codec;
    const attributes = codec?.attributesOf(value);
    expect([...(attributes?.labels ?? [])]).toEqual([["t", "2"]]);
    expect([...(attributes?.fields ?? [])]).toEqual([["x.y", "z"]]);
    expect([...(codec?.declaredFields ?? [])]).toEqual(["x.y"]);
  });

  test("protobuf reads the configured message, by the descriptors in a file", () => {
    const codec = resource(
      "codec: protobuf",
      "descriptors: lease.binpb",
      "message: acme.v1.Metadata",
      "labels: labels",
      "fields: [name]",
    )?.codec;
    // 1 is the name, 2 an entry of the labels.
    const attributes = codec?.attributesOf(Buffer.from("\x0a\x01n\x12\x06\x0a\x01k\x12\x01v"));
    expect([...(attributes?.labels ?? [])]).toEqual([["k", "v"]]);
    expect([...(attributes?.fields ?? [])]).toEqual([["name", "n"]]);
  });
});

describe("A resource's indexes", () => {
  test("are some of its fields", () => {
    const lines = ["codec: json", "fields: [a, b, c]", "indexes: [c, a]"];
    expect(resource(...lines)?.indexes).toEqual(["c", "a"]);
  });

  test("are empty by default, without duplicates", () => {
    expect(resource("codec: json", "fields: [a]")?.indexes).toEqual([]);
    expect(resource("codec: json", "fields: [a]", "indexes: [a, a]")?.indexes).toEqual(["a"]);
  });
});

describe("A resource's event-window", () => {
  const yaml = (eventWindow: string): string =>
    `event-window-max-events: 5000\nresources: [{name: a, prefix: /a/, event-window: ${eventWindow}}, b=/b/]`;

  test("has the bounds that it sets, and the general ones for the others", () => {
    const { eventWindow, resources } = load({ yaml: yaml("{age: 1h, max-bytes: 16MiB}") });
    expect(eventWindow).toMatchObject({ ageMs: 300_000, maxEvents: 5_000 });
    expect(resources[0]?.eventWindow).toEqual({
      ageMs: 3_600_000,
      minEvents: 1_000,
      maxEvents: 5_000,
      maxBytes: 16 * 2 ** 20,
    });
    expect(resources[1]?.eventWindow).toEqual(eventWindow);
  });

  test("may keep more or fewer events than others", () => {
    const { resources } = load({ yaml: yaml("{min-events: 0, max-events: 9000}") });
    expect(resources[0]?.eventWindow).toMatchObject({ minEvents: 0, maxEvents: 9_000 });
  });
});

describe("A resource's cache", () => {
  test.each([
    ["on", true],
    ["off", false],
    ["true", true],
    ["false", false],
    ['"off"', false],
  ])("may be %s", (word, expected) => {
    expect(resource(`cache: ${word}`)?.cache).toBe(expected);
  });

  test("can be off for a resource with labels and fields", () => {
    const off = resource("codec: json", "fields: [x]", "cache: off");
    expect(off).toMatchObject({ cache: false, codec: { hasAttributes: true } });
  });
});

test("several resources each have their own settings", () => {
  const { resources } = load({
    yaml: `
resources:
  - name: pods
    prefix: /pods/
    codec: json
    fields: [spec.nodeName]
    indexes: [spec.nodeName]
  - name: blobs
    prefix: /blobs/
    cache: off
  - rest=/rest/
`,
  });
  const settings = resources.map(({ name, codec, indexes, cache }) => [
    name,
    codec.name,
    indexes,
    cache,
  ]);
  expect(settings).toEqual([
    ["pods", "json", ["spec.nodeName"], true],
    ["blobs", "opaque", [], false],
    ["rest", "opaque", [], true],
  ]);
});

describe("A problem of a resource is reported with its line and key", () => {
  const json = "codec: json";
  const protobuf = ["codec: protobuf", "descriptors: lease.binpb", "message: acme.v1.Lease"];
  const place = (line: number, key: string): string => `wf.yaml:${line + 3}: resources[0].${key}`;
  const resourceKeys =
    "name, prefix, upstream-name, codec, labels, fields, indexes, descriptors, message, event-window, cache";

  test.each<[readonly string[], string]>([
    // Values of the wrong type.
    [["codec: xml"], `${place(1, "codec")}: "xml" is not opaque, json or protobuf.`],
    [["codec: {}"], `${place(1, "codec")}: {} is not opaque, json or protobuf.`],
    [["cache: maybe"], `${place(1, "cache")}: "maybe" is not on or off.`],
    [["cache: 1"], `${place(1, "cache")}: 1 is not on or off.`],
    [[json, "labels: 7"], `${place(2, "labels")}: 7 is not text; put it in quotes.`],
    [
      [json, "fields: a"],
      `${place(2, "fields")}: "a" is not a list of fields, such as [status.phase].`,
    ],
    [
      [json, "fields: [a,", "  true]"],
      `${place(3, "fields[1]")}: true is not text; put it in quotes.`,
    ],
    [
      ["event-window: 5m"],
      `${place(1, "event-window")}: "5m" is not a mapping of age, min-events, max-events and max-bytes.`,
    ],
    [
      ["event-window: {", "  age: soon}"],
      `${place(2, "event-window.age")}: "soon" is not a duration from 1s to 24 days, such as 500ms, 75s, 5m or 1h30m.`,
    ],
    [
      ["event-window: {max-events: 0}"],
      `${place(1, "event-window.max-events")}: "0" is not a whole number of at least 1.`,
    ],
    // Keys that do not exist.
    [
      ["prefx: /b/"],
      `${place(1, "prefx")}: a resource has no such key. Its keys are ${resourceKeys}. Did you mean "prefix"?`,
    ],
    [["quux: 1"], `${place(1, "quux")}: a resource has no such key. Its keys are ${resourceKeys}.`],
    [
      ["event-window: {", "  max-evnts: 1}"],
      `${place(2, "event-window.max-evnts")}: an event-window has no such key. Its keys are age, min-events, ` +
        'max-events, max-bytes. Did you mean "max-events"?',
    ],
    // Invalid paths.
    [
      [json, "labels: a..b"],
      `${place(2, "labels")}: "a..b" is not a path: names with one dot between, such as status.phase.`,
    ],
    [
      [json, "fields: [ok,", '  "a=b"]'],
      `${place(3, "fields[1]")}: "a=b" can't be the name of a field, ` +
        "since a field selector reads = and , and ! at the end as the end of a name.",
    ],
    [
      [...protobuf, "fields: [renewed.when]"],
      `${place(4, "fields[0]")}: "renewed.when": google.protobuf.Timestamp has no field "when"; ` +
        "it has seconds, nanos.",
    ],
    [
      [...protobuf, "labels: metadata.counts"],
      `${place(4, "labels")}: "metadata.counts" is not a map<string, string>, as labels are.`,
    ],
    // Indexes of undeclared fields.
    [
      [json, "fields: [spec.node]", "indexes: [spec.nod]"],
      `${place(3, "indexes[0]")}: "spec.nod" is not one of the resource's fields; add it to them. ` +
        'Did you mean "spec.node"?',
    ],
    [
      [json, "indexes: [x]"],
      `${place(2, "indexes[0]")}: "x" is not one of the resource's fields; add it to them.`,
    ],
    // Settings that exclude one another.
    [["labels: a"], `${place(1, "labels")}: needs codec: json or codec: protobuf as well.`],
    [["fields: [a]"], `${place(1, "fields")}: needs codec: json or codec: protobuf as well.`],
    [
      ["codec: opaque", "labels: a"],
      `${place(2, "labels")}: needs codec: json or codec: protobuf, not opaque.`,
    ],
    [["message: a.B"], `${place(1, "message")}: needs codec: protobuf as well.`],
    [
      [json, "descriptors: lease.binpb"],
      `${place(2, "descriptors")}: needs codec: protobuf, not json.`,
    ],
    ...[[], ["message: a.B"], ["descriptors: lease.binpb"]].map(
      (half): [readonly string[], string] => [
        ["codec: protobuf", ...half],
        `${place(1, "codec")}: protobuf needs both descriptors, the file of a descriptor set, and ` +
          "message, the full name of a message in it.",
      ],
    ),
    [
      ["cache: off", "event-window: {age: 1m}"],
      `${place(2, "event-window")}: has no effect with cache: off.`,
    ],
    [
      ["cache: off", json, "fields: [a]", "indexes: [a]"],
      `${place(4, "indexes")}: has no effect with cache: off.`,
    ],
    [
      ["event-window: {max-events: 500}"],
      `${place(1, "event-window")}: --event-window-min-events, 1000, is more than max-events, 500.`,
    ],
    [
      ["event-window: {min-events: 9, max-events: 8}"],
      `${place(1, "event-window")}: min-events, 9, is more than max-events, 8.`,
    ],
  ])("%j", (lines, problem) => {
    expect(problemsOf(yamlOf(...lines))).toEqual([problem]);
  });

  test.each<[readonly string[], RegExp]>([
    [
      ["codec: protobuf", "descriptors: gone", "message: a.B"],
      /^wf\.yaml:5: resources\[0\]\.descriptors: "gone" can't be read: .*no such file/,
    ],
    [
      ["codec: protobuf", "descriptors: lease.proto", "message: a.B"],
      /^wf\.yaml:5: resources\[0\]\.descriptors: it is not a descriptor set: .*Write one with "buf build/,
    ],
    [
      ["codec: protobuf", "descriptors: lease.binpb", "message: acme.v1.Leese"],
      /^wf\.yaml:6: resources\[0\]\.message: "acme\.v1\.Leese" is not a message of the descriptor set/,
    ],
  ])("%j", (lines, problem) => {
    const [reported, ...others] = problemsOf(yamlOf(...lines));
    expect(reported).toMatch(problem);
    expect(others).toEqual([]);
  });

  test("all at once, for all resources", () => {
    const yaml = `
resources:
  - {name: a, prefix: /a/, codec: json, fields: [x., y=], indexes: [z]}
  - {name: b, prefix: /b/, labels: l}
`;
    const places = problemsOf({ yaml }).map((problem) => problem.split(": ", 2)[1]);
    expect(places.sort()).toEqual([
      "resources[0].fields[0]",
      "resources[0].fields[1]",
      "resources[0].indexes[0]",
      "resources[1].labels",
    ]);
  });

  test("an invalid general bound of event windows is reported once", () => {
    const { yaml = "" } = yamlOf("event-window: {age: 1m}");
    const problems = problemsOf({ yaml, flags: ["--event-window-max-events", "10"] });
    expect(problems).toEqual([
      "--event-window-min-events: 1000 is more than --event-window-max-events, which is 10.",
    ]);
  });
});
