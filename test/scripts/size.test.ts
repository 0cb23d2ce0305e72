import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { installedIn, privateFields, report, sourceByFolder, words } from "../../scripts/size.ts";

/** A folder with these files. */
function folderWith(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(join(tmpdir(), "watch-fanout-size-test-"));
  onTestFinished(() => rmSync(root, { recursive: true }));
  for (const [file, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), content);
  }
  return root;
}

test("Source is counted by folder, without what is generated", () => {
  const root = folderWith({
    "src/index.ts": "one\n",
    "src/a/b.ts": "one\ntwo\n",
    "src/a/deep/c.ts": "one\n",
    "src/a/generated/d.ts": "one\n",
    "src/a/e.js": "one\n",
    "test/a.ts": "one\n",
  });
  expect([...sourceByFolder(root)]).toEqual([
    ["src/a", { lines: 3, files: 2 }],
    ["src", { lines: 1, files: 1 }],
  ]);
});

test("Private fields are found however they are reached, but not those that are public, nor in comments", () => {
  const root = folderWith({
    "src/a.ts": [
      'const a: unknown = Reflect.get(server, "commonServerOptions");',
      'Reflect.set(rawSocketOf(call), "decoder", []);',
      "const b = socket._handle;",
      "const [c] = Object.getOwnPropertySymbols(session);",
      'const d = Reflect.get(error, "code");',
      '// Reflect.get(server, "settings")',
      " * Reflect.get(server, _settings._all)",
    ].join("\n"),
    "src/b.ts": "const own = this.#handle;",
  });
  const fields = ["commonServerOptions", "decoder", "_handle", "getOwnPropertySymbols"];
  expect([...privateFields(root)]).toEqual([["src/a.ts", new Set(fields)]]);
});

test("Words are those of all pages", () => {
  const root = folderWith({
    "README.md": "# Two words\n",
    "docs/a/page.md": "one\n\ntwo three\n",
    "src/page.md": "not this\n",
    "examples/node_modules/package/README.md": "nor this\n",
  });
  expect(words(root)).toBe(6);
});

test("What npm has installed is counted with packages of packages", () => {
  const root = folderWith({
    "node_modules/.package-lock.json": JSON.stringify({
      packages: { "node_modules/a": {}, "node_modules/a/node_modules/b": {} },
    }),
    "node_modules/a/index.js": "12345",
    "node_modules/a/node_modules/b/index.js": "123",
  });
  expect(installedIn(root)).toEqual({ packages: 2, bytes: 8 });
});

test("The report has every number, with the circles of files", () => {
  const root = folderWith({
    "src/a.ts": 'import "./b.ts";\n',
    "src/b.ts": 'import type { A } from "./a.ts";\nconst handle = socket._handle;\n',
    "README.md": "Hello\n",
  });
  expect(report(root)).toEqual([
    "   lines  files  hand-written source",
    "       3      2  src",
    "       3      2  in all",
    "",
    "circles of files: 1",
    "private fields of grpc-js and Node.js: 1, files that use them: 1",
    "  src/b.ts: _handle",
    "words of Markdown: 1",
  ]);
});
