import { globSync } from "node:fs";
import { join } from "node:path";
import { loadSync } from "@grpc/proto-loader";
import { describe, expect, test } from "vitest";
import { definitions } from "../../src/wire/services.ts";

const protos = join(import.meta.dirname, "../../proto");

/** What proto-loader makes of the files. */
const loaded = loadSync(globSync("**/*.proto", { cwd: protos }).sort(), {
  ...{ keepCase: true, longs: String, enums: String, defaults: true, oneofs: true },
  includeDirs: [protos],
});

/** A definition without its functions, and without the files, which proto-loader names after the source. */
function comparable(definition: unknown): unknown {
  const text = JSON.stringify(definition, (name, value) =>
    name === "fileDescriptorProtos" ? undefined : value,
  );
  return text && JSON.parse(text);
}

describe("The generated definitions", () => {
  const names = Object.keys(definitions);

  test("are of all services", () => {
    expect(names).toEqual(
      expect.arrayContaining(
        Object.keys(loaded).filter((name) => !name.startsWith("google.protobuf.")),
      ),
    );
  });

  test.each(names)("of %s are what proto-loader reads from the protos", (name) => {
    expect(comparable(definitions[name])).toEqual(comparable(loaded[name]));
  });
});
