/** A person's second factors, and confirming who they are. */
import { queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient } from "./client";
import { makePasskey, signWithPasskey } from "./passkey";

export const factorsQuery = queryOptions({
  queryKey: ["me", "factors"],
  queryFn: () => answerOf(api.GET("/api/me/factors")),
});

const changed = () => queryClient.invalidateQueries({ queryKey: ["me", "factors"] });

export const prepareTotp = () => answerOf(api.POST("/api/me/totp"));

/** Resolves to new recovery codes; none when earlier ones stay valid. */
export async function enableTotp(code: string): Promise<string[]> {
  const { recovery_codes: codes } = await answerOf(api.POST("/api/me/totp/enable", { body: { code } }));
  await changed();
  return codes;
}

export async function disableTotp() {
  await answerOf(api.DELETE("/api/me/totp"));
  await changed();
}

export async function replaceRecoveryCodes(): Promise<string[]> {
  const { recovery_codes: codes } = await answerOf(api.POST("/api/me/recovery-codes"));
  await changed();
  return codes;
}

/** Resolves to new recovery codes; none when earlier ones stay valid. */
export async function addPasskey(name: string): Promise<string[]> {
  const { options } = await answerOf(api.POST("/api/me/passkeys/options"));
  const credential = await makePasskey(options);
  const { recovery_codes: codes } = await answerOf(api.POST("/api/me/passkeys", { body: { name, credential } }));
  await changed();
  return codes;
}

export async function renamePasskey(id: string, name: string) {
  await answerOf(api.PATCH("/api/me/passkeys/{passkey_id}", { params: { path: { passkey_id: id } }, body: { name } }));
  await changed();
}

export async function deletePasskey(id: string) {
  await answerOf(api.DELETE("/api/me/passkeys/{passkey_id}", { params: { path: { passkey_id: id } } }));
  await changed();
}

export const confirmMethodsQuery = queryOptions({
  queryKey: ["me", "confirm"],
  queryFn: () => answerOf(api.GET("/api/me/confirm")),
  staleTime: 0,
});

export const confirmIdentity = (body: { password?: string; code?: string }) => answerOf(api.POST("/api/me/confirm", { body }));

export async function confirmWithPasskey() {
  const { options } = await answerOf(api.POST("/api/me/confirm/passkey-options"));
  await answerOf(api.POST("/api/me/confirm", { body: { credential: await signWithPasskey(options) } }));
}
