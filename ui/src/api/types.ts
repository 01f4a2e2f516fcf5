/** Short names for the shapes of the API. The shapes themselves are generated from the server's description. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type User = Schemas["UserOut"];
export type Role = User["role"];
export type AuthState = Schemas["AuthState"];
export type OAuthProvider = AuthState["oauthProviders"][number];
export type SignedIn = Schemas["SignedIn"];
export type Session = Schemas["SessionOut"];
export type ApiToken = Schemas["ApiTokenOut"];
export type Scope = ApiToken["scopes"][number];
export type Project = Schemas["ProjectOut"];
export type ProjectBody = Schemas["ProjectIn"];
export type ModelArchitecture = Project["modelArchitecture"];
export type Person = Schemas["PersonOut"];
export type Invitation = Schemas["InvitationOut"];
export type AuditEvent = Schemas["AuditEventOut"];
export type Job = Schemas["JobOut"];
export type JobStatus = Job["status"];
export type NewJob = Schemas["NewJob"];
export type PlanRequest = Schemas["PlanRequest"];
export type PlanAnswer = Schemas["PlanAnswer"];
export type LiveSettings = Schemas["LiveSettings"];
export type Extension = Schemas["Extension"];
export type Curve = Schemas["CurveOut"];
export type Curves = Schemas["Curves"];
export type Checkpoint = Schemas["CheckpointOut"];
export type Machine = Schemas["Machine"];
