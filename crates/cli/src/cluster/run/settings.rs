//! Settings of a local cluster, from a file and the command line.

use crate::args::{ClusterRun, Policies};
use punctual_files::failure::Failure;
use punctual_files::local::{LocalSettings, load};
use punctual_files::node::control_of;
use punctual_units::Nanos;

/// Settings of the file and the command line, which wins.
///
/// # Errors
/// [`Failure::Input`] for an unusable file or value.
pub fn of(arguments: &ClusterRun) -> Result<LocalSettings, Failure> {
    let mut settings = match &arguments.file {
        Some(file) => load(file, |top| LocalSettings::default().or_of(top), LocalSettings::faults)?,
        None => LocalSettings::default(),
    };
    take(&mut settings, arguments.nodes, arguments.balancers, arguments.duration);
    take_policies(&mut settings, &arguments.policies);
    Failure::refuse(settings.faults().0)?;
    Ok(settings)
}

/// Takes the policies that the command line names.
pub fn take_policies(settings: &mut LocalSettings, policies: &Policies) {
    settings.balancer = policies.balancer.unwrap_or(settings.balancer);
    settings.admission = policies.admission.unwrap_or(settings.admission);
    settings.backlog = control_of(settings.admission, settings.backlog.take());
}

/// Takes what the command line says.
pub fn take(settings: &mut LocalSettings, nodes: Option<u32>, balancers: Option<u32>, duration: Option<Nanos>) {
    settings.nodes = nodes.unwrap_or(settings.nodes);
    settings.balancers = balancers.unwrap_or(settings.balancers);
    settings.duration = duration.or(settings.duration);
}
