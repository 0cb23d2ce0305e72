import { describe, expect, test } from "vitest";
import { CodecError } from "../../src/codec/codec.ts";
import { ProtobufCodec } from "../../src/codec/protobuf-codec.ts";
import { buildDescriptors } from "./fixtures.ts";

const descriptors = buildDescriptors();
const Lease = "acme.v1.Lease";

describe("What the message does not have is refused, with what there is", () => {
  const problems = (
    options: Partial<ConstructorParameters<typeof ProtobufCodec>[0]>,
  ): readonly unknown[] => {
    try {
      new ProtobufCodec({ descriptors, message: Lease, ...options });
      return [];
    } catch (error) {
      if (!(error instanceof CodecError)) throw error;
      return error.problems.map(({ at, message }) => `${at.join(" ")}: ${message}`);
    }
  };

  test.each<[string, string]>([
    [
      "spec.nodeName",
      '"spec.nodeName": acme.v1.Spec has no field "nodeName"; it has phase, last_phase, node_name, person, deputy, numbers, limits.',
    ],
    ["", '"" is not a path: names with one dot between, such as status.phase.'],
    [
      "metadata..name",
      '"metadata..name" is not a path: names with one dot between, such as status.phase.',
    ],
    [
      "spec",
      '"spec" is a message, acme.v1.Spec, but a field has to be a scalar. Continue to one of its fields: phase, last_phase, node_name, person, deputy, numbers, limits.',
    ],
    ["payload", '"payload" is bytes, which selectors do not compare.'],
    ["notes", '"notes": notes is repeated, but a path leads to a single value.'],
    ["metadata.labels", '"metadata.labels": labels is a map, but a path leads to a single value.'],
    ["metadata.name.x", '"metadata.name.x": name is not a message, so that it has no x.'],
    ["spec.phase.x", '"spec.phase.x": phase is not a message, so that it has no x.'],
  ])("the field %j", (path, message) => {
    expect(problems({ fields: ["metadata.name", path] })).toEqual([`fields 1: ${message}`]);
  });

  test.each<[string, RegExp]>([
    ["metadata.name", /^labels: "metadata\.name" is not a map<string, string>, as labels are\.$/],
    ["metadata.counts", /^labels: "metadata\.counts" is not a map<string, string>/],
    ["notes", /^labels: "notes" is not a map<string, string>/],
    ["spec", /^labels: "spec" is not a map<string, string>/],
    [
      "metadata.label",
      /^labels: "metadata\.label": acme\.v1\.Metadata has no field "label"; it has/,
    ],
  ])("labels at %j", (labels, message) => {
    const [problem, ...others] = problems({ labels });
    expect(problem).toMatch(message);
    expect(others).toEqual([]);
  });

  test("the message", () => {
    const [problem] = problems({ message: "acme.v1.Leese" });
    expect(problem).toMatch(
      /^message: "acme\.v1\.Leese" is not a message of the descriptor set, which has .*acme\.v1\.Lease/,
    );
  });

  test.each<[string, Buffer]>([
    ["an empty file", Buffer.alloc(0)],
    ["a proto instead of its descriptors", Buffer.from('syntax = "proto3";')],
    ["a file that is cut off", descriptors.subarray(0, 1_000)],
  ])("%s", (_what, bytes) => {
    const [problem, ...others] = problems({ descriptors: bytes });
    expect(problem).toMatch(
      /^descriptors: it is not a descriptor set: .*"buf build -o FILE\.binpb"/,
    );
    expect(others).toEqual([]);
  });

  test("what is imported but left out of the set", () => {
    const lacking = buildDescriptors("--exclude-imports");
    expect(problems({ descriptors: lacking, fields: ["renewed.seconds"] })).toEqual([
      'fields 0: "renewed.seconds": the descriptor set lacks google.protobuf.Timestamp; ' +
        'write it with its imports, as "buf build" and "protoc --include_imports" do.',
    ]);
  });
});
