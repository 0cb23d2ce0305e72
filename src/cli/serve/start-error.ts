/** Why the service could not start, in a sentence for the user. */
export class StartError extends Error {
  override readonly name = "StartError";
}
