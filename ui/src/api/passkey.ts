/** The browser's side of passkeys (WebAuthn): what the server asks for goes in, what the server checks comes out. */
import { ApiProblem } from "./problem";
import type { components } from "./schema";

type Schemas = components["schemas"];
type Options = Schemas["PasskeyOptions"]["options"];

/** Browsers say little about why, on purpose: a page must not learn which passkeys a person has. */
function refusal(error: unknown): ApiProblem {
  const name = error instanceof DOMException ? error.name : "";
  const sentence =
    name === "InvalidStateError"
      ? "This device already has a passkey for your account."
      : name === "SecurityError"
        ? "The address of this page does not allow passkeys. Open the server at its public address."
        : "No passkey was used. The request was cancelled or took too long. Try again.";
  return new ApiProblem(sentence, { status: 0, code: "passkey_cancelled" });
}

async function answered<T>(ceremony: () => Promise<Credential | null>): Promise<T> {
  if (!globalThis.PublicKeyCredential?.parseRequestOptionsFromJSON) {
    throw new ApiProblem("This browser does not support passkeys. Update the browser, or use another method.", { status: 0, code: "passkey_unsupported" });
  }
  try {
    const credential = await ceremony();
    if (credential instanceof PublicKeyCredential) return credential.toJSON() as T;
  } catch (error) {
    throw refusal(error);
  }
  throw refusal(null);
}

export const makePasskey = (options: Options) =>
  answered<Schemas["MadeCredential"]>(() =>
    navigator.credentials.create({
      publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options as unknown as PublicKeyCredentialCreationOptionsJSON),
    }),
  );

export const signWithPasskey = (options: Options) =>
  answered<Schemas["SignedCredential"]>(() =>
    navigator.credentials.get({
      publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options as unknown as PublicKeyCredentialRequestOptionsJSON),
    }),
  );
