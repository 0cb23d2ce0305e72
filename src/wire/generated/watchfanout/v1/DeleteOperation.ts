// Original file: proto/watchfanout/v1/write_service.proto


/**
 * Deletes an object.
 */
export interface DeleteOperation {
}

/**
 * Deletes an object.
 */
export interface DeleteOperation__Output {
}
