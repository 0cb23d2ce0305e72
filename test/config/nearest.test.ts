import { expect, test } from "vitest";
import { nearest } from "../../src/config/setting.ts";

const names = ["listen", "log-level", "log-format", "etcd", "etcd-ca"];

test.each([
  ["lisen", "listen"],
  ["lsiten", "listen"],
  ["listens", "listen"],
  ["logLevel", "log-level"],
  ["log_format", "log-format"],
  ["ectd", "etcd"],
  ["etcd", "etcd"],
  ["etc-ca", "etcd-ca"],
  ["port", undefined],
  ["x", undefined],
  ["", undefined],
])("the name most similar to %j is %j", (text, expected) => {
  expect(nearest(text, names)).toBe(expected);
});
