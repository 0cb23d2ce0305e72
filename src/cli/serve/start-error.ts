/** Why the service could not start, in a sentence for whoever started it. */
export class StartError extends Error {
  override readonly name = "StartError";
}
