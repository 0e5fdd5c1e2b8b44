package io.frazil.conformance;

/** A case file does not follow the format: the fault of the file, not of the sink. */
public final class CaseException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** Says what is wrong with the file. */
  public CaseException(String message) {
    super(message);
  }

  /** Says what is wrong with the file, and why. */
  public CaseException(String message, Throwable cause) {
    super(message, cause);
  }
}
