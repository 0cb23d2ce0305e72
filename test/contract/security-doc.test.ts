import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { flagOf, optionNames } from "../../src/config/options.ts";

const page = new URL("../../docs/security.md", import.meta.url);
const text = readFileSync(page, "utf8");
const named = [...text.matchAll(/\[([^\]]+)\]\((\.\.\/test\/[^)]+)\)/g)];

describe("docs/security.md", () => {
  test("names tests for each threat", () => {
    const [, threats = ""] = text.split("## Threats\n");
    const rows = threats
      .split("\n")
      .filter((line) => line.startsWith("| ") && !/^\| threat/.test(line));
    expect(rows.length).toBeGreaterThan(10);
    expect(rows.filter((row) => !row.includes("](../test/"))).toEqual([]);
  });

  test.each(named.map(([, name = "", path = ""]) => ({ name, path })))(
    "names $name, which is in $path",
    ({ name, path }) => {
      expect(readFileSync(new URL(path, page), "utf8")).toContain(`"${name}"`);
    },
  );

  test("names only existing options of serve", () => {
    const ofClients = ["--tls-client-cert", "--tls-client-key", "--tls-ca", "--bearer-token-file"];
    const known = [...optionNames.map(flagOf), ...ofClients];
    const options = [...text.matchAll(/`(--[a-z-]+)/g)].map(([, name = ""]) => name);
    expect(options.length).toBeGreaterThan(10);
    expect(options.filter((name) => !known.includes(name))).toEqual([]);
  });
});
