import { describe, expect, test } from "vitest";
import { ruleBrokenByKey, ruleBrokenByValue } from "../../src/selector/parse-label-selector.ts";

describe("The rules of labels", () => {
  test("take the empty text for a value, but not for a key", () => {
    expect(ruleBrokenByValue("")).toBeUndefined();
    expect(ruleBrokenByKey("")).toContain("a label key of 1 to 63 characters");
  });

  test("allow a prefix to a key, but not to a value", () => {
    expect(ruleBrokenByKey("example.com/a")).toBeUndefined();
    expect(ruleBrokenByValue("example.com/a")).toContain("a label value of at most 63 characters");
  });
});
