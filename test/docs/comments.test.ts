import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const commented = globSync("{src,bench}/**/*.ts", { exclude: ["**/generated/**"] }).sort();

/** Where the names come from: also those of Node.js and of libraries are used somewhere. */
const named = globSync(["{src,bench,scripts,test,examples}/**/*.ts", "proto/**/*.proto"]);

/** Comments. What looks like one in a string is left out as well, such as the rest of an address behind its "//". */
const comments = /\/\*[\s\S]*?\*\/|\/\/.*/g;

/** Names of others that comments have, and no code. Say here whose. */
const foreign = new Set([
  // A field of etcd's mvcc/watchable_store.go.
  "progressIfSync",
]);

const names = new Set(
  named.flatMap((file) => readFileSync(file, "utf8").replaceAll(comments, "").match(/\w+/g) ?? []),
);

/** The names of code that a comment has in backticks: those with capitals, as other words may be anything. */
function namesIn(comment: string): string[] {
  const code = [...comment.matchAll(/`([^`\n]+)`/g)].map(([, text = ""]) => text);
  return code.flatMap((text) => text.match(/\b(?:[a-z]+[A-Z]\w*|[A-Z]\w*[a-z]\w*)\b/g) ?? []);
}

test("Comments name only what the code has", () => {
  const unknown = commented.flatMap((file) =>
    [...readFileSync(file, "utf8").matchAll(comments)]
      .flatMap(([comment]) => namesIn(comment))
      .filter((name) => !names.has(name) && !foreign.has(name))
      .map((name) => `${file}: ${name}`),
  );
  expect(unknown).toEqual([]);
});
