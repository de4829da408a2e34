//! The kinds of work for which a processor can be charged: those of all machines that a simulated host runs.

use usher_core::WorkLabel;

usher_core::work_labels! {
    /// A request of the workload `dialogue` sent.
    DIALOGUE_REQUEST = "dialogue.request" per "message";
    /// A request of the workload `dialogue` answered.
    DIALOGUE_ANSWER = "dialogue.answer" per "message";
    /// A packet forwarded by a router.
    FORWARD = "forward.packet" per "packet";
    /// A packet of a PPPoE session received and forwarded by a concentrator.
    PPPOE_FROM_HOST = "pppoe.from_host" per "packet";
    /// A packet sent into a PPPoE session by a concentrator.
    PPPOE_TO_HOST = "pppoe.to_host" per "packet";
    /// A line of a concentrator's session log made durable, off the processor; waiting lines are written together.
    PPPOE_LOG = "pppoe.log" per "line";
}

/// Returns all kinds of work, in the order of the crates that declare them.
pub fn all_work_labels() -> impl Iterator<Item = WorkLabel> {
    let declared = [
        usher_radius::work::WORK,
        usher_diameter::work::WORK,
        usher_eap::work::WORK,
        usher_crypto::work::WORK,
        usher_pkm::work::WORK,
        usher_mih::work::WORK,
        usher_mobility::work::WORK,
        usher_ident::work::WORK,
        usher_ike::work::WORK,
        usher_ppp::work::WORK,
        usher_aaa::work::WORK,
        WORK,
    ];
    declared.into_iter().flatten().copied()
}

/// Finds a kind of work by its name.
pub fn find_work_label(name: &str) -> Option<WorkLabel> {
    all_work_labels().find(|label| label.name() == name)
}

/// Schema of a table with a value for each kind of work, and no other keys.
pub(crate) fn schema(schema: &mut schemars::Schema) {
    let Some(value) = schema.insert("additionalProperties".into(), false.into()) else { return };
    let properties = all_work_labels().map(|label| {
        let mut value = value.clone();
        value["description"] = format!("{} One unit is one {}.", label.description(), label.unit()).into();
        (label.name().to_owned(), value)
    });
    schema.insert("properties".into(), properties.collect::<serde_json::Map<_, _>>().into());
}
