/** Short names for the shapes of the API. The shapes themselves are generated from the server's description. */
import type { components, paths } from "./schema";

type Schemas = components["schemas"];

type Listed = { [Path in keyof paths]: paths[Path] extends { get: { parameters: { query?: unknown } } } ? Path : never }[keyof paths];
/** What an address can be asked with. */
export type QueryOf<Path extends Listed> = NonNullable<paths[Path] extends { get: { parameters: { query?: infer Query } } } ? Query : never>;

export type User = Schemas["UserOut"];
export type Role = User["role"];
export type AuthState = Schemas["AuthState"];
export type OAuthProvider = AuthState["oauth_providers"][number];
export type SignedIn = Schemas["SignedIn"];
export type SecondStep = Schemas["SecondStep"];
export type Passkey = Schemas["PasskeyOut"];
export type Factors = Schemas["FactorsOut"];
export type Session = Schemas["SessionOut"];
export type StorageUse = Schemas["StorageOut"];
export type ApiToken = Schemas["ApiTokenOut"];
export type Scope = ApiToken["scopes"][number];
export type Project = Schemas["ProjectOut"];
export type ProjectBody = Schemas["CamelProjectIn"];
export type ModelArchitecture = NonNullable<Project["modelArchitecture"]>;
export type Person = Schemas["PersonOut"];
export type Invitation = Schemas["InvitationOut"];
export type CreatedInvitation = Schemas["CreatedInvitation"];
export type LinkedAccount = Schemas["LinkedAccountOut"];
export type PasswordStrength = Schemas["PasswordStrength"];
export type AuditEvent = Schemas["AuditEventOut"];
export type Job = Schemas["JobOut"];
export type JobListItem = Schemas["JobListItem"];
export type TrainConfig = NonNullable<Job["config"]>;
export type Plan = NonNullable<Job["plan"]>;
export type Memory = Plan["memory"];
export type Phase = Plan["phases"][number];
export type JobStatus = Job["status"];
export type JobUpdate = Schemas["JobUpdate"];
export type LiveSeries = Schemas["LiveSeries"];
export type RunSummary = Schemas["RunSummary"];
export type Mark = Schemas["Mark"];
export type Cost = Schemas["Cost"];
export type NewJob = Schemas["NewJob"];
export type PlanRequest = Schemas["PlanRequest"];
export type PlanAnswer = Schemas["PlanAnswer"];
export type NearestFit = Schemas["NearestFit"];
export type MachinePlan = Schemas["MachinePlan"];
export type MemoryNeeds = Schemas["Needs"];
export type LiveSettings = Schemas["LiveSettings-Input"];
export type Extension = Schemas["Extension"];
export type Curve = Schemas["CurveOut"];
export type Curves = Schemas["Curves"];
export type Checkpoint = Schemas["CheckpointOut"];
export type Move = Schemas["Move"];
export type Machine = Schemas["Machine"];
/** The client takes a list of pairs for a list of lists. */
export type Lengths = Omit<Schemas["LengthsOut"], "longest"> & { longest: number[][] };
export type DatasetReport = Omit<Schemas["ReportOut"], "lengths"> & { lengths: Lengths | null };
export type Dataset = Omit<Schemas["DatasetOut"], "report"> & { report: DatasetReport | null };
export type DatasetColumn = Schemas["ColumnOut"];
export type Format = Schemas["MappingOut"]["format"];
export type Piece = Schemas["PieceOut"];
export type PreviewRow = Schemas["PreviewRowOut"];
export type RowProblem = Schemas["RowProblemOut"];
export type Model = Schemas["ModelOut"];
export type ModelCheck = Schemas["CheckOut"];
export type Finding = Schemas["FindingOut"];
export type Catalogue = Schemas["CatalogueOut"];
export type CatalogueModel = Schemas["CatalogueModelOut"];
/** What somebody sets of a config; the rest is left to the defaults. */
export type RequestedConfig = Schemas["TrainConfig-Input"];
export type Method = TrainConfig["method"];
export type JobKind = Job["kind"];
export type NewEvaluation = Schemas["NewEvaluation"];
export type NewExport = Schemas["NewExport"];
export type EvaluationResult = Schemas["EvaluationResult"];
export type ExportResult = Schemas["ExportResult"];
export type FinderResult = Schemas["FinderResult"];
export type CheckpointOfJob = Schemas["CheckpointOfJob"];
export type Difference = Schemas["Difference"];
export type Outcome = Schemas["Outcome"];
/** A model in memory, or on its way there. */
export type PlaygroundSession = Schemas["PlaygroundOut"];
