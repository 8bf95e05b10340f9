//! Turns a scenario's stages into a graph.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use punctual_pipelines::linux::CStage;
use punctual_pipelines::{AnyStage, Failure, Frames, Graph, StageSpec};
use punctual_units::{CoreId, Nanos};
use punctual_workload::{Problem, Problems};

use super::check::{self, READING, ports};
use super::kinds::{COPY, copy};
use super::libraries::KeptLibraries;
use super::{Body, StageNeeds, StagesSpec};

/// Stages that fit each other.
#[derive(Clone, Debug)]
pub struct StagePlan {
    pub(crate) graph: Graph,
    /// For each stage of the scenario, the stages of the graph that it is.
    pub(crate) parts: Vec<Parts>,
}

/// The stages of the graph behind one of the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Stage that takes the frames, and has the stage's own name; of a source it is the same as `makes`.
    pub(crate) takes: String,
    /// Stage that makes the frames.
    pub(crate) makes: String,
}

impl Parts {
    /// `cuts`: a program in the middle is two stages.
    fn of(said: &StageNeeds, stage: &StageSpec, cuts: bool) -> Parts {
        let in_the_middle = !stage.takes.is_empty() && !stage.makes.is_empty();
        let cut = cuts && matches!(said.does, Body::Program(_)) && in_the_middle;
        Parts {
            takes: stage.name.clone(),
            makes: format!("{}{}", stage.name, if cut { READING } else { "" }),
        }
    }
}

impl StagePlan {
    /// The graph of a scenario's stages; loads its libraries.
    ///
    /// # Errors
    /// Everything that is wrong, by its key.
    pub fn new(name: &str, spec: &StagesSpec) -> Result<StagePlan, Vec<Problem>> {
        StagePlan::of(name, spec, true)
    }

    /// As [`StagePlan::new`] for frames without content, which programs in the middle pass on one for one: each stage
    /// of the scenario is one of the graph, in the same order. Stages that compute get cores, whatever they are.
    ///
    /// # Errors
    /// Everything that is wrong, by its key.
    pub(crate) fn simulated(name: &str, spec: &StagesSpec) -> Result<StagePlan, Vec<Problem>> {
        let mut spec = spec.clone();
        spec.edges.iter_mut().for_each(|edge| edge.edge.frame_bytes = 1);
        StagePlan::of(name, &spec, false)
    }

    fn of(name: &str, spec: &StagesSpec, real: bool) -> Result<StagePlan, Vec<Problem>> {
        some(check::single(spec))?;
        let mut problems = Problems::default();
        let numbered = spec.stages.iter().enumerate();
        let resolved: Vec<StageSpec> = numbered
            .map(|(number, stage)| {
                let mut resolved = resolve(&mut problems, spec, number, stage);
                resolved.migratable |= !real && stage.compute > Nanos::ZERO;
                resolved
            })
            .collect();
        some(problems.0)?;
        some(check::connections(spec, &resolved))?;
        some(if real { frames_fit(spec) } else { Vec::new() })?;
        let parts: Vec<Parts> = spec
            .stages
            .iter()
            .zip(&resolved)
            .map(|(said, stage)| Parts::of(said, stage, real))
            .collect();
        let mut graph = Graph::builder(name);
        for (stage, part) in resolved.into_iter().zip(&parts) {
            graph = match part.makes == part.takes {
                true => graph.stage(stage),
                false => {
                    let reading = StageSpec::new(&part.makes).makes(&stage.makes).pinned();
                    let makes = Vec::new();
                    graph.stage(StageSpec { makes, ..stage }).stage(reading)
                }
            };
        }
        for edge in &spec.edges {
            let from = spec.stages.iter().position(|stage| stage.name == edge.from.0);
            let from = from.map_or("", |number| parts[number].makes.as_str());
            graph = graph.edge((from, edge.from.1), (&edge.to.0, edge.to.1), edge.edge);
        }
        let graph = graph.build().map_err(|why| vec![check::told(spec, &why)])?;
        Ok(StagePlan { graph, parts })
    }

    /// The number, among `cores`, of the core that each stage of the graph begins on: the named one, else cores are
    /// dealt out in their order.
    ///
    /// # Errors
    /// A core that is not among them, by its key.
    pub fn placement(&self, spec: &StagesSpec, cores: &[CoreId]) -> Result<Vec<usize>, Problem> {
        let stages = self.graph.stages();
        let migratable = stages.iter().filter(|stage| stage.migratable).count();
        let mut dealt = 0..;
        let place = |stage: &StageSpec| {
            if !stage.migratable {
                return Ok(0);
            }
            let next = dealt.next().unwrap_or(0) * cores.len() / migratable.max(1);
            let named = spec.stages.iter().position(|it| it.name == stage.name);
            let Some((number, core)) = named.and_then(|number| Some((number, spec.stages[number].core?))) else {
                return Ok(next);
            };
            let what = format!("this process may not use core {core}; name another one, or remove this key");
            let found = cores.iter().position(|it| *it == core);
            found.ok_or_else(|| Problem::new(format!("stage[{number}].core"), what))
        };
        stages.iter().map(place).collect()
    }
}

/// The problems, if there are any.
fn some(problems: Vec<Problem>) -> Result<(), Vec<Problem>> {
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Least and greatest room for the state of a library beyond its present length, in bytes: a later version may need
/// more, and the memory of a running pipeline does not grow. Between them the state may double.
const GROWTH: (usize, usize) = (4096, 1 << 20);

/// Whether a stage must not write there: in a store's folder, under a name of scenarios or models, or in place of a
/// document, such as a model: JSON whose first key is `kind`.
fn is_kept(path: &Path) -> bool {
    let name = path.as_os_str().as_encoded_bytes();
    name.ends_with(b".toml")
        || name.ends_with(b".model.json")
        || path.parent().is_some_and(|folder| folder.join("data.mdb").exists())
        || is_document(path).unwrap_or(false)
}

fn is_document(path: &Path) -> io::Result<bool> {
    let mut text = Vec::new();
    if path.is_file() {
        File::open(path)?.take(256).read_to_end(&mut text)?;
    }
    let inner = text.trim_ascii_start().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    Ok(inner.is_some_and(|inner| inner.starts_with(b"\"kind\"")))
}

/// The stage as the graph has it.
fn resolve(problems: &mut Problems, spec: &StagesSpec, number: usize, stage: &StageNeeds) -> StageSpec {
    let key = |field: &str| format!("stage[{number}].{field}");
    let said = |inputs: bool| {
        let said = if inputs { &stage.takes } else { &stage.makes };
        said.clone().unwrap_or_else(|| vec![1; ports(spec, stage, inputs)])
    };
    let mut resolved = StageSpec {
        name: stage.name.clone(),
        takes: said(true),
        makes: said(false),
        state_room: 0,
        save_every: stage.save_every,
        migratable: stage.migratable.unwrap_or(true),
    };
    let needed = match &stage.does {
        Body::Program(_) => {
            resolved.migratable = false;
            0
        }
        Body::File(path) => {
            resolved.migratable = false;
            let there = !resolved.takes.is_empty() || path.exists();
            let what = format!("{}: no such file; name one to be read", path.display());
            problems.require(there, key("file"), what);
            let kept = !resolved.takes.is_empty() && is_kept(path);
            let what = format!(
                "{}: in the folder of a store, a scenario, or a document of punctual; name another file to be written",
                path.display()
            );
            problems.require(!kept, key("file"), what);
            0
        }
        Body::Library(path) => match open(path) {
            Ok(library) => library.state_bytes(),
            Err(why) => {
                problems.require(false, key("library"), why);
                0
            }
        },
        Body::Kind(name, kind) => {
            let own = kind.spec.clone();
            for (said, own, field) in [(&stage.takes, &own.takes, "takes"), (&stage.makes, &own.makes, "makes")] {
                let what = format!("the kind \"{name}\" has {own:?}; remove this key");
                problems.require(said.as_ref().is_none_or(|said| said == own), key(field), what);
            }
            (resolved.takes, resolved.makes) = (own.takes, own.makes);
            own.state_room
        }
    };
    resolved.state_room = stage.state_bytes.unwrap_or_else(|| match stage.does {
        Body::Library(_) => needed + needed.clamp(GROWTH.0, GROWTH.1),
        _ => needed,
    });
    let what = format!("its state has {needed} bytes: ask for at least that, or remove this key");
    problems.require(resolved.state_room >= needed, key("state_bytes"), what);
    resolved
}

fn open(path: &Path) -> Result<CStage, String> {
    // SAFETY: the user names the library as a stage; the header that it is built with says what it must keep.
    unsafe { CStage::open(path) }.map_err(|why| why.to_string())
}

/// Problems of kinds of stages that make longer frames than their edges have.
fn frames_fit(spec: &StagesSpec) -> Vec<Problem> {
    let mut problems = Problems::default();
    for stage in &spec.stages {
        let Body::Kind(name, kind) = &stage.does else { continue };
        let into = spec.edges.iter().filter(|edge| edge.to.0 == stage.name);
        let taken = into.map(|edge| edge.edge.frame_bytes).max().unwrap_or(0);
        let made = (kind.makes_bytes)(taken);
        for (number, edge) in spec
            .edges
            .iter()
            .enumerate()
            .filter(|(_, edge)| edge.from.0 == stage.name)
        {
            let there = edge.edge.frame_bytes;
            let what =
                format!("{there} is too short: of {taken} bytes, \"{name}\" makes {made}; write at least {made}");
            problems.require(there >= made, format!("edge[{number}].frame_bytes"), what);
        }
    }
    problems.0
}

/// Code of a stage that is no program and no file, before the first frame.
pub(super) fn body(spec: &StagesSpec, kept: &KeptLibraries, name: &str) -> Option<Box<dyn AnyStage>> {
    let number = spec.stages.iter().position(|stage| stage.name == name)?;
    match &spec.stages[number].does {
        Body::Program(_) | Body::File(_) => None,
        Body::Kind(name, _) if name == COPY => Some(copy(spec.stages[number].compute)),
        Body::Kind(_, kind) => Some((kind.make)()),
        Body::Library(path) => Some(match open(&kept.path(number, path)) {
            Ok(stage) => Box::new(stage),
            Err(why) => Box::new(BrokenStage(Failure(why))),
        }),
    }
}

/// A stage whose code cannot be loaded: it does nothing but say why.
struct BrokenStage(Failure);

impl AnyStage for BrokenStage {
    fn version(&self) -> u32 {
        0
    }

    fn begin(&mut self) {}

    fn load(&mut self, _: u32, _: &[u8]) -> Result<(), Failure> {
        Err(self.0.clone())
    }

    fn save(&self, _: &mut [u8]) -> Result<usize, Failure> {
        Err(self.0.clone())
    }

    fn step(&mut self, _: &mut Frames<'_>) -> Result<(), Failure> {
        Err(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use punctual_pipelines::{EdgeSpec, WhenFull};

    use super::*;
    use crate::stages::{EdgeNeeds, StageNeeds, kind};

    fn stage(name: &str, does: Body) -> StageNeeds {
        StageNeeds {
            name: name.into(),
            does,
            takes: None,
            makes: None,
            state_bytes: None,
            save_every: 1,
            migratable: None,
            core: None,
            compute: Nanos::ZERO,
            period: None,
            deadline: None,
            restart: false,
            goal: None,
        }
    }

    #[test]
    fn a_stage_writes_over_no_scenario_model_or_store() {
        let folder = punctual_testing::shared_folder();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("store")).unwrap();
        let model = "{\n \"kind\": \"punctual-model\"}";
        for (name, text) in [("sound", "RIFF"), ("store/data.mdb", ""), ("learnt.json", model)] {
            std::fs::write(at(name), text).unwrap();
        }
        for name in ["job.toml", "x.model.json", "store/sound", "learnt.json"] {
            assert!(is_kept(&at(name)), "{name}");
        }
        for name in ["sound", "sound.wav", "report.json"] {
            assert!(!is_kept(&at(name)), "{name}");
        }
    }

    /// A program, as many copies, a program in the middle, a program.
    fn chain(copies: usize) -> StagesSpec {
        let program = || Body::Program(vec!["cat".into()]);
        let copy = || Body::Kind("copy".into(), kind("copy", None).expect("built in"));
        let mut stages = vec![stage("first", program())];
        stages.extend((0..copies).map(|number| stage(&format!("copy-{number}"), copy())));
        stages.extend([stage("middle", program()), stage("last", program())]);
        let edges = stages.windows(2).map(|pair| EdgeNeeds {
            from: (pair[0].name.clone(), 0),
            to: (pair[1].name.clone(), 0),
            edge: EdgeSpec {
                slots: 4,
                frame_bytes: 8,
                full: WhenFull::Wait,
            },
        });
        let edges = edges.collect();
        StagesSpec {
            stages,
            edges,
            ..StagesSpec::default()
        }
    }

    #[test]
    fn a_program_in_the_middle_is_two_stages_of_the_graph() {
        let plan = StagePlan::new("x", &chain(1)).unwrap();
        let names: Vec<&str> = plan.graph.stages().iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names, ["first", "copy-0", "middle", "middle:out", "last"]);
        let ends = plan.graph.links().iter().map(|link| (link.from.0, link.to.0));
        assert_eq!(ends.collect::<Vec<_>>(), [(0, 1), (1, 2), (3, 4)]);
    }

    #[test]
    fn stages_are_dealt_out_to_all_cores_in_their_order() {
        for (copies, count) in [(1, 1), (1, 4), (4, 2), (5, 3), (8, 8)] {
            let spec = chain(copies);
            let cores: Vec<CoreId> = (0..count).map(|core| CoreId(10 + core)).collect();
            let placement = StagePlan::new("x", &spec).unwrap().placement(&spec, &cores).unwrap();
            let dealt = &placement[1..=copies];
            assert!(dealt.is_sorted(), "{placement:?}");
            let on = |core: usize| dealt.iter().filter(|it| **it == core).count();
            let counts: Vec<usize> = (0..cores.len()).map(on).collect();
            let most = counts.iter().max().unwrap();
            assert!(*most <= copies.div_ceil(cores.len()), "{counts:?} for {copies} stages");
        }
    }

    #[test]
    fn a_named_core_is_kept_or_refused_by_its_key() {
        let mut spec = chain(2);
        spec.stages[2].core = Some(CoreId(11));
        let plan = StagePlan::new("x", &spec).unwrap();
        let place = |cores: &[u32]| {
            let cores: Vec<CoreId> = cores.iter().copied().map(CoreId).collect();
            plan.placement(&spec, &cores)
        };
        assert_eq!(place(&[11, 12]).unwrap()[2], 0);
        assert_eq!(place(&[12, 13]).unwrap_err().key, "stage[2].core");
    }
}
